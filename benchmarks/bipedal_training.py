"""Training steps per second on the Bipedal Walker, by the number of worker processes and of seeds.

    pip install "procurl[box2d]"
    python benchmarks/bipedal_training.py --workers 1,2 --seeds 1
    python benchmarks/bipedal_training.py --workers 1,2,16 --seeds 1,5,10 --device gpu
    python benchmarks/bipedal_training.py --workers 2 --seeds 2 --jax        (the walker in JAX beside it)

Every case is a training run with the setting's own numbers (SAC, an update for ten steps, ProCuRL-Target), of which
some iterations are timed after a few that compile and fill the buffer; the median iteration counts. `play` is the part
in which the worker processes play; the rest is the student's updates and the teacher. From the rate follows how long
the paper's experiment takes: 20 million steps, 10 seeds; an evaluation every 500,000 steps (100 episodes, here taken to
last 1,000 steps) is added at the rate at which the workers play. With `--jax` a row of `bipedal-jax` follows each of
Box2D's, whose iterations take turns with its own, and the ratio of the two rates.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from measure import machine_line

import procurl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=numbers, default=[1, 2], metavar="1,2")
    parser.add_argument("--seeds", type=numbers, default=[1], metavar="1,5")
    parser.add_argument("--iterations", type=int, default=10, help="that are timed, of 2,000 steps for each seed")
    parser.add_argument("--jax", action="store_true", help="compare with the walker in JAX")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    args = parser.parse_args()
    procurl.use_cores(device=args.device)

    print(f"{'seeds':>5} {'workers':>7} {'steps/s':>9} {'play':>6} {'playing alone':>14}   20M steps x 10 seeds")
    for seeds in args.seeds:
        for workers in args.workers:
            measure(seeds, workers, args.iterations, args.jax)
    print(f"\n{procurl.devices.available_cores()} cores; {machine_line()}")


def measure(n_seeds: int, workers: int, iterations: int, in_jax: bool) -> None:
    from procurl.runs.host.engine import HostEngine

    env, space = procurl.make("bipedal")
    config = procurl.preset("bipedal")
    engine = HostEngine(env, procurl.make_teacher("procurl-target", space), config, tuple(range(n_seeds)), workers)
    playing: list[float] = []
    play = engine.workers.play

    def timed_play(*args):
        began = time.perf_counter()
        played = play(*args)
        playing.append(time.perf_counter() - began)
        return played

    engine.workers.play = timed_play
    turn = turns(engine)
    turn_in_jax = turns(jax_engine(n_seeds)) if in_jax else itertools.repeat(0.0)
    warm = config.sac.start_steps // config.sac.n_steps + 2  # afterwards the policy plays
    both = [(next(turn), next(turn_in_jax)) for _ in range(warm + iterations)]
    seconds = [a for a, _ in both]
    engine.close()
    steps = n_seeds * config.sac.n_steps
    whole, play_seconds = statistics.median(seconds[warm:]), statistics.median(playing[warm:])
    rate, play_rate = steps / whole, steps / play_seconds
    hours = (200e6 / rate + 10 * 40 * 100 * 1000 / play_rate) / 3600
    print(
        f"{n_seeds:5} {workers:7} {rate:9,.0f} {play_seconds / whole:6.0%} {play_rate:10,.0f}/s    {hours:8,.1f} hours",
        flush=True,
    )
    if in_jax:
        ours = n_seeds * procurl.preset("bipedal-jax").sac.n_steps / statistics.median(b for _, b in both[warm:])
        print(
            f"{n_seeds:5} {'JAX':>7} {ours:9,.0f} {'':6} {'':>14}    {ours / rate:.2f} of the rate in Box2D", flush=True
        )


def jax_engine(n_seeds: int) -> Any:
    from procurl.runs.engine import Engine

    env, space = procurl.make("bipedal-jax")
    teacher = procurl.make_teacher("procurl-target", space)
    return Engine(env, teacher, procurl.preset("bipedal-jax"), tuple(range(n_seeds)))


def turns(engine: Any) -> Iterator[float]:
    """Seconds of one iteration after the other."""
    import jax

    carry = engine.begin()
    for t in itertools.count():
        began = time.perf_counter()
        carry, trace = engine.iterate(carry, t)
        jax.block_until_ready((carry, trace))
        yield time.perf_counter() - began


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
