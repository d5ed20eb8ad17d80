"""Seeds side by side: the loop's functions, compiled once for all seeds and spread over the local devices.

Seeds are a `vmap` axis within a device and a `shard_map` axis over devices, and never talk to each other. All
randomness of a seed's iteration t is a function of (seed, t), so a seed alone draws what it draws in company.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from procurl import loop
from procurl.check import imagined_episodes
from procurl.config import Config
from procurl.evaluation import Scores, evaluate
from procurl.loop import Carry
from procurl.record import Trace
from procurl.state import raw
from procurl.students.critic import StudentCritic
from procurl.types import Env, TaskSpace, Teacher

PER_SEED, SHARED = PartitionSpec("seeds"), PartitionSpec()


class Engine:
    """begin -> iterate, iterate, ... with `evaluate` at any time."""

    def __init__(self, env: Env, teacher: Teacher, config: Config, seeds: tuple[int, ...]) -> None:
        devices = jax.local_devices()[: len(seeds)]
        padded = seeds + seeds[-1:] * (-len(seeds) % len(devices))  # every device gets the same number
        self.n_seeds = len(seeds)
        mesh = Mesh(np.array(devices), ("seeds",))
        # Environment, teacher and pool travel as arguments: as constants they would be compiled in.
        self.world = jax.device_put((env, teacher), NamedSharding(mesh, SHARED))
        keys = jax.vmap(jax.random.key)(jnp.array(padded, jnp.uint32))
        self.keys = jax.device_put(keys, NamedSharding(mesh, PER_SEED))
        self._program = _program(config, mesh, jax.tree.structure(self.world))

    def begin(self) -> Carry:
        return self._program.begin(self.keys, None, 0, self.world)

    def iterate(self, carry: Carry, t: int) -> tuple[Carry, Trace]:
        """Iteration number t. The carry that goes in must not be used again."""
        return self._program.iterate(self.keys, carry, t, self.world)

    def evaluate(self, carry: Carry, t: int) -> Scores:
        """The students after t iterations on the held-out tasks."""
        return self.to_host(self._program.score(self.keys, carry.student.params, t, self.world))

    def teacher_seconds(self, carry: Carry, repeats: int = 5) -> float:
        """Time of one iteration's teacher calls, compiled alone, for all seeds: the fastest of a few."""
        seconds = []
        for _ in range(repeats + 1):  # the first also compiles
            started = time.perf_counter()
            jax.block_until_ready(self._program.only_teach(self.keys, carry, 0, self.world))
            seconds.append(time.perf_counter() - started)
        return min(seconds)

    def shapes(self) -> Carry:
        """The carry of all seeds, padding left out, as shapes and types."""
        carry = jax.eval_shape(self._program.begin, self.keys, None, 0, self.world)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.n_seeds, *x.shape[1:]), x.dtype), carry)

    def put(self, carry: Carry) -> Carry:
        """A carry from the host, onto the devices. A padding seed repeats the last one, and so does all it does."""
        n_padded = self.keys.shape[0]

        def padded(x: Any) -> Any:
            return jnp.concatenate([x, jnp.repeat(x[-1:], n_padded - self.n_seeds, axis=0)])

        return jax.device_put(jax.tree.map(padded, carry), self.keys.sharding)

    def to_host(self, tree: Any) -> Any:
        """As NumPy arrays, padding seeds left out."""
        return jax.tree.map(lambda x: np.asarray(raw(x))[: self.n_seeds], tree)


class Program(NamedTuple):
    """Compiled functions (keys, per-seed tree, t, (env, teacher)) -> per-seed tree."""

    begin: Callable[..., Carry]
    iterate: Callable[..., tuple[Carry, Trace]]
    score: Callable[..., Scores]
    only_teach: Callable[..., Any]


@lru_cache(maxsize=8)
def _program(config: Config, mesh: Mesh, kind: Any) -> Program:
    """One set of compiled functions per config, devices and kind of world: a second such run compiles nothing.

    Few are kept: a CPU program takes hundreds of memory mappings, and a process may only have so many.
    """

    def begin(key: Array, _: None, t: Array, world: Any) -> Carry:
        env, teacher = world
        return loop.begin(jax.random.fold_in(key, 0), env, teacher, config)

    def iterate(key: Array, carry: Carry, t: Array, world: Any) -> tuple[Carry, Trace]:
        env, teacher = world
        return loop.iteration(carry, jax.random.fold_in(key, 2 * t + 1), env, teacher, config)

    def score(key: Array, params: Any, t: Array, world: Any) -> Scores:
        env, teacher = world
        k_eval = jax.random.fold_in(key, 2 * t + 2)
        space: TaskSpace = teacher.space
        return evaluate(
            env, params, space.held_out, k_eval, config.evaluation_episodes, fresh_seeds=space.fresh_seeds
        )  # fmt: skip

    def only_teach(key: Array, carry: Carry, t: Array, world: Any) -> Any:
        env, teacher = world
        tasks = teacher.propose(carry.teacher, key, config.ppo.n_steps)
        played = imagined_episodes(key, tasks, config.ppo.n_envs)
        return tasks, teacher.observe(carry.teacher, key, played, StudentCritic(env, carry.student.params))

    def over_seeds(fn: Callable[..., Any], donate: bool = False) -> Callable[..., Any]:
        spread = jax.shard_map(
            jax.vmap(fn, in_axes=(0, 0, None, None)),
            mesh=mesh,
            in_specs=(PER_SEED, PER_SEED, SHARED, SHARED),
            out_specs=PER_SEED,
            check_vma=False,
        )
        return jax.jit(spread, donate_argnums=(1,) if donate else ())

    return Program(over_seeds(begin), over_seeds(iterate, donate=True), over_seeds(score), over_seeds(only_teach))
