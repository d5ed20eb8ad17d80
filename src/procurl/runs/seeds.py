"""Seeds side by side: functions of one seed, compiled once for all of them and spread over the local devices.

Within a device, seeds are a `vmap` axis (in blocks on a CPU); across devices, a `shard_map` axis. They never exchange
anything, so a seed draws the same numbers alone as in company.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from procurl.programs import Program, jit
from procurl.runs.store.state import raw

PER_SEED, SHARED = PartitionSpec("seeds"), PartitionSpec()


class Own(NamedTuple):
    """What a seed does not share with the others."""

    key: Array
    fields: dict[str, Array]  # in a sweep, values of fields of teacher and student, by their dotted names


class Seeds:
    """The seeds of a run and the devices that they are spread over. Every device gets the same number."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        devices = jax.local_devices()[: len(numbers)]
        padded = numbers + numbers[-1:] * (-len(numbers) % len(devices))
        self.n = len(numbers)
        self.mesh = Mesh(np.array(devices), ("seeds",))
        self.keys = self.put(jax.vmap(jax.random.key)(jnp.array(padded, jnp.uint32)))

    def put(self, tree: Any) -> Any:
        """Move a tree from the host to the devices, padded with copies of the last seed."""
        n_padded = -(-self.n // self.mesh.size) * self.mesh.size

        def padded(x: Any) -> Any:
            missing = n_padded - x.shape[0]
            return jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)]) if missing else x

        return jax.device_put(jax.tree.map(padded, tree), NamedSharding(self.mesh, PER_SEED))

    def share(self, tree: Any) -> Any:
        """What all seeds have in common."""
        return jax.device_put(tree, NamedSharding(self.mesh, SHARED))

    def to_host(self, tree: Any) -> Any:
        """As NumPy arrays, without the padding."""
        return jax.tree.map(lambda x: np.asarray(raw(x))[: self.n], tree)

    def shapes(self, tree: Any) -> Any:
        """Shapes and types for all seeds, without the padding."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.n, *x.shape[1:]), x.dtype), tree)


def over_seeds(fn: Callable[..., Any], mesh: Mesh, donate: bool = False, blocks: bool = False) -> Program:
    """(own tree, tree of one seed, t, shared tree) -> tree of one seed, compiled for all seeds side by side.

    `own` is what a seed keeps for the whole run (its key).

    `donate` gives the memory of the second argument to the result. With `blocks` a CPU works on a few of its seeds at a
    time, so that they fit into its cache; that copies their trees, so it is not for large ones.

    Matrix products are in full float32 unless told otherwise: a GPU's default (TF32) changes what is learnt.
    """

    @wraps(fn)  # whose name the program gets
    def of_one_device(own: Any, trees: Any, t: Array, shared: Any) -> Any:
        n = len(jax.tree.leaves(own)[0])
        size = block_size(n) if blocks and mesh.devices.flat[0].platform == "cpu" else n
        with jax.default_matmul_precision("highest"):
            if size == n:
                return jax.vmap(fn, in_axes=(0, 0, None, None))(own, trees, t, shared)
            return jax.lax.map(lambda seed: fn(*seed, t, shared), (own, trees), batch_size=size)

    spread = jax.shard_map(
        of_one_device,
        mesh=mesh,
        in_specs=(PER_SEED, PER_SEED, SHARED, SHARED),
        out_specs=PER_SEED,
        check_vma=False,
    )
    return jit(spread, donate_argnums=(1,) if donate else ())


def block_size(n: int) -> int:
    """How many of a core's n seeds are worked on at a time: a divisor of n."""
    return next(size for size in (4, 3, 2, 5, 7, n) if n % size == 0)  # fastest first


def fastest(run: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of a few runs, after a first one that compiles."""
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
