"""Environments that live on the host, in worker processes, with a student on JAX's devices.

`member.py` plays one environment and knows no JAX; `workers.py` runs the processes that do so; `engine.py` lets the
loop run on them as it runs on environments in JAX.
"""

from __future__ import annotations
