"""BW (the paper's fifth setting): the Bipedal Walker on Stump Tracks, from the TeachMyAgent benchmark.

`track.py` says what a task looks like, `space.py` which tasks there are, `stump_tracks.py` lets Gymnasium's walker play
them in Box2D, and `jax_walker` in JAX. Only Box2D needs an extra, `[box2d]`.
"""

from __future__ import annotations
