"""The walker on Stump Tracks in JAX: Box2D's own algorithm for this one body on this one kind of terrain.

Read `physics.py` first: one step, in Box2D's order. `body.py` and `terrain.py` say what there is, `collision.py` where
it touches, `contacts.py`, `joints.py` and `impacts.py` what follows, `env.py` what a student sees of it.

The walkers are the last axis everywhere: an array of the five bodies is f32[5, N]. The arithmetic is elementwise, so
it runs along that axis, whatever the other axes count (`lanes.py`).
"""

from __future__ import annotations
