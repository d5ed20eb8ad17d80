"""Writes the table of first steps that the walker in JAX begins its episodes with (`jax_walker/start.py`).

python tools/walker_start.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from procurl.envs.bipedal.jax_walker import start
from procurl.envs.bipedal.jax_walker.body import PUSH


def main() -> None:
    push = jnp.linspace(-PUSH, PUSH, start.NODES)
    leaves = jax.tree.leaves(jax.jit(start.first_step)(push))
    file = start.FILE
    np.savez_compressed(file, **{f"{k:02}": np.asarray(leaf) for k, leaf in enumerate(leaves)})
    print(f"{file}: {len(leaves)} arrays, {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
