"""Where the time of SAC in the compiled loop goes: one iteration, its parts, and what its products cost.

    python benchmarks/sac_in_loop.py [--seeds 1] [--capacity 2000000]
    python benchmarks/sac_in_loop.py --device gpu --setting bipedal-jax --seeds 5 --precision tf32
    python benchmarks/sac_in_loop.py --device gpu --setting bipedal-jax --seeds 5 --precision bf16 --kernels

The walker's sizes: 128 environments play 20 steps each, and 256 updates follow, with layers of 400 and 300 and
minibatches of 1000. Every part is compiled alone; the matrix products are those of the updates and nothing besides.
`--kernels` makes the updates of kernels (`students/sac_kernels`), and compares them with those that XLA compiles.
On a CPU, time is CPU seconds on one core, so that other programs do not count; on a GPU, it is the clock's. The best of
a few runs counts.
"""

# ruff: noqa: E402  # XLA reads its flags when JAX is imported

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import procurl


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--capacity", type=int, default=2_000_000, help="transitions in each seed's buffer")
    parser.add_argument("--setting", default="point-mass-1t")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--precision", default="float32", help="of the updates' matrix products on a GPU")
    parser.add_argument("--kernels", action="store_true", help="updates as a few kernels; with bf16 on a GPU")
    return parser.parse_args()


ARGS = arguments()
procurl.use_cores(1, device=ARGS.device)
seconds_now = time.process_time if ARGS.device == "cpu" else time.perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from measure import machine_line

from procurl import loop
from procurl.config import SAC, Config
from procurl.runs.engine import Engine
from procurl.runs.seeds import over_seeds
from procurl.students import replay, sac, sac_kernels
from procurl.students.learners import learner_of
from procurl.students.trainee import Trainee


def main() -> None:
    config = SAC(
        n_envs=128, n_steps=2560, capacity=ARGS.capacity, start_steps=2560, first_fit=2**30, precision=ARGS.precision
    )
    sac_kernels.ON = ARGS.kernels
    if ARGS.kernels and not sac_kernels.usable(config):
        raise SystemExit("--kernels needs --device gpu --precision bf16, and a JAX with Pallas' Triton backend")
    env, space = procurl.make(ARGS.setting)
    engine = Engine(
        env, procurl.make_teacher("procurl-target", space), Config(sac=config), seeds=tuple(range(ARGS.seeds))
    )
    carry, seconds = engine.begin(), []
    for t in range(4):  # the first compiles
        began = seconds_now()
        carry, _ = jax.block_until_ready(engine.iterate(carry, t))
        seconds.append(seconds_now() - began)
    print(f"an iteration of {ARGS.seeds} seeds: {min(seconds[1:]):.2f} s; of that, each part compiled alone:")
    for name, run in parts(engine, carry, env, config).items():
        print(f"  {name:40} {cheapest(run):8.3f} s")
    if ARGS.kernels:
        compare_kernels(engine, carry, config)
    products = products_of(env.obs_size, env.action.size, config)
    operations = ARGS.seeds * config.n_steps // config.every * sum(2 * m * k * n for m, k, n in products) / 1e9
    took = cheapest(product_loop(products, config.n_steps // config.every))
    print(f"the updates' products and nothing besides: {took:.2f} s, {operations / took:.0f} GFLOP/s")
    print(machine_line())


def parts(engine: Engine, carry: Any, env: Any, config: SAC) -> dict[str, Callable[[], Any]]:
    n, trainee, mesh = config.n_steps // config.every, carry.student.trainee, engine.seeds.mesh
    full = trainee._replace(buffer=trainee.buffer._replace(added=jnp.full_like(trainee.buffer.added, config.capacity)))

    def pick_and_play(own: Any, carry: Any, t: Any, world: Any) -> Any:
        env, teacher = world
        k_pick, k_play, *_ = loop.iteration_keys(own.key, t)
        tasks = teacher.propose(carry.teacher, k_pick, config.n_steps)
        return learner_of(config, teacher.space).play(carry.student, env, carry.envs, tasks, k_play)[2:]

    learn = updates(config)

    def draw(own: Any, trainee: Trainee, t: Any, _: Any) -> Any:
        def one(total: Any, i: Any) -> Any:
            drawn = replay.sample(trainee.buffer, jax.random.fold_in(own.key, i), config.batch_size, env.obs_size)
            return total + sum(map(jnp.sum, drawn)), None

        return jax.lax.scan(one, jnp.float32(0), jnp.arange(n))[0]

    played, learnt, drawn = (over_seeds(part, mesh) for part in (pick_and_play, learn, draw))
    return {
        "picking and playing": lambda: played(engine.own, carry, 5, engine.world),
        "updates": lambda: learnt(engine.own, trainee, 0, ()),
        "their draws, from a buffer of 10,240": lambda: drawn(engine.own, trainee, 0, ()),
        f"their draws, from one of {config.capacity:,}": lambda: drawn(engine.own, full, 0, ()),
        "teaching": lambda: engine._programs.only_teach(engine.own, carry, 0, engine.world),
    }


def updates(config: SAC) -> Callable[..., Any]:
    """An iteration's updates as a new function, which is traced with or without kernels."""

    def learn(own: Any, trainee: Trainee, t: Any, _: Any) -> Any:
        n = config.n_steps // config.every
        return (sac_kernels.learn if sac_kernels.ON else sac.learn)(
            trainee.student, trainee.buffer, n, own.key, config
        )[0]

    return learn


def compare_kernels(engine: Engine, carry: Any, config: SAC) -> None:
    """Time, and how far the weights end from those of updates that XLA compiles, in units of their way."""
    learnt, seconds = {}, {}
    for name, sac_kernels.ON in {"by XLA": False, "by kernels": True}.items():
        learn = over_seeds(updates(config), engine.seeds.mesh)
        seconds[name] = cheapest(lambda learn=learn: learn(engine.own, carry.student.trainee, 0, ()))
        learnt[name] = learn(engine.own, carry.student.trainee, 0, ()).networks
        print(f"  {'updates ' + name:40} {seconds[name]:8.3f} s")
    before = carry.student.trainee.student.networks
    for part in ("actor", "critics"):
        a, b, c = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(getattr(networks, part))])
            for networks in (before, *learnt.values())
        )
        print(f"  {part}: the two end {np.linalg.norm(b - c) / np.linalg.norm(b - a):.4f} of their way apart")
    print(f"  kernels take {seconds['by kernels'] / seconds['by XLA']:.2f} of XLA's time")


def products_of(obs_size: int, action_size: int, config: SAC) -> list[tuple[int, int, int]]:
    """(m, k, n) of every matrix product in one update."""

    def layers(*ends: int) -> list[tuple[int, int]]:
        widths = (ends[0], *config.hidden, ends[1])
        return list(itertools.pairwise(widths))

    actor, critic, b = layers(obs_size, 2 * action_size), layers(obs_size + action_size, 1), config.batch_size
    forward = lambda net: [(b, i, o) for i, o in net]  # noqa: E731
    of_weights = lambda net: [(i, b, o) for i, o in net]  # noqa: E731
    of_inputs = lambda net: [(b, o, i) for i, o in net]  # noqa: E731
    targets = forward(actor) + 2 * forward(critic)
    critics = 2 * (forward(critic) + of_weights(critic) + of_inputs(critic[1:]))
    policy = forward(actor) + of_weights(actor) + of_inputs(actor[1:]) + 2 * (forward(critic) + of_inputs(critic))
    return targets + critics + policy


def product_loop(products: list[tuple[int, int, int]], n: int) -> Callable[[], Any]:
    """The products of all seeds, n times."""
    rng = np.random.default_rng(0)
    precision = sac.PRECISION[ARGS.precision if ARGS.device == "gpu" else "float32"]

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(ARGS.seeds, *shape)).astype(np.float32)

    pairs = [(normal(m, k), normal(k, n)) for m, k, n in products]

    @jax.jit
    def run(pairs: Any) -> Any:
        def one(total: Any, _: None) -> Any:  # the factor keeps the compiler from computing them once for all
            return sum((jnp.sum(jnp.matmul(a * (1 + total), b, precision=precision)) for a, b in pairs)) * 1e-30, None

        return jax.lax.scan(one, jnp.float32(0), length=n)[0]

    on_device = jax.device_put(pairs)
    return lambda: run(on_device)


def cheapest(run: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds, after a first run that compiles."""
    seconds = []
    for _ in range(repeats + 1):
        began = seconds_now()
        jax.block_until_ready(run())
        seconds.append(seconds_now() - began)
    return min(seconds[1:])


if __name__ == "__main__":
    main()
