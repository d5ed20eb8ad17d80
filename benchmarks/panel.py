"""Several strategies in one program, since a few seeds of one leave most of a GPU idle: the walker's panel.

    python benchmarks/panel.py --device gpu --precision bf16 --kernels --seeds 0-2 --out runs/panel \\
        --teachers procurl-target procurl-target:release procurl-path procurl-unif iid
    python benchmarks/compare.py --name panel --settings bipedal-jax --record runs/panel/strategies/* --out ...

Every seed carries the states of all strategies, and follows one of them: a sweep over which one. What is played and
learnt is what the strategy alone would give, up to rounding, and the others see episodes that are none of theirs, which
has no consequence. The folder holds the sweep, from which a cut run goes on (not with `--keep-nothing`), and in
`strategies` an ordinary run folder for each; `procurl plot` and `procurl report` read them. `--join` joins the seeds of
several such folders:

    python benchmarks/panel.py --join runs/panel runs/panel-2 --out runs/whole-panel
"""

# ruff: noqa: E402  # XLA reads its flags when JAX is imported

from __future__ import annotations

import argparse
import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import procurl
from procurl.cli.common import seed_range, step_count


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="bipedal-jax")
    parser.add_argument("--teachers", nargs="+", default=["procurl-target", "iid"], help="NAME or NAME:VARIANT")
    parser.add_argument("--seeds", type=seed_range, default=range(5))
    parser.add_argument("--steps", type=step_count, default=20_000_000)
    parser.add_argument("--evaluate-every", type=step_count, default=1_000_000, help="environment steps")
    parser.add_argument("--precision", default="float32", help="of the updates' products on a GPU")
    parser.add_argument("--kernels", action="store_true", help="updates as a few kernels; with bf16 on a GPU")
    parser.add_argument("--device", choices=["cpu", "gpu"])
    parser.add_argument(
        "--minutes", type=float, help="stop at the first evaluation after so long, and keep what is there"
    )
    parser.add_argument("--keep-nothing", action="store_true", help="no checkpoints: replay buffers take long to write")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--join", type=Path, nargs="+", help="only join the seeds of these folders")
    return parser.parse_args()


ARGS = arguments()
if not ARGS.join:
    procurl.use_cores(device=ARGS.device)

import jax
import jax.numpy as jnp
from measure import machine_line

from procurl.check.fields import param
from procurl.cli.progress import ProgressLine
from procurl.programs import pytree
from procurl.runs.provenance import describe_teacher
from procurl.runs.store.join import joined
from procurl.runs.store.result import Result, load_result
from procurl.students import sac_kernels
from procurl.types import Critic, Episodes, Task, TaskSpace


def main() -> None:
    if ARGS.join:
        for name in sorted(path.name for path in (ARGS.join[0] / "strategies").iterdir()):
            parts = [load_result(folder / "strategies" / name) for folder in ARGS.join]
            joined(parts).save(ARGS.out / "strategies" / name)
        return
    env, space = procurl.make(ARGS.setting)
    config = procurl.preset(ARGS.setting)
    every = max(1, round(ARGS.evaluate_every / config.student.n_steps))
    sac = config.sac and dataclasses.replace(config.sac, precision=ARGS.precision)
    config = dataclasses.replace(config, sac=sac, evaluate_every=every)
    sac_kernels.ON = ARGS.kernels
    if ARGS.kernels and not (sac and sac_kernels.usable(sac)):
        raise SystemExit("--kernels needs --device gpu --precision bf16, and a JAX with Pallas' Triton backend")
    strategies = Strategies(tuple(strategy(name, space) for name in ARGS.teachers), tuple(ARGS.teachers))
    print(machine_line(), flush=True)
    until = time.monotonic() + 60 * ARGS.minutes if ARGS.minutes else float("inf")
    with ProgressLine(f"{ARGS.setting}, {len(ARGS.teachers)} strategies") as line:
        found = procurl.sweep(
            env, OneOf(space, strategies), config, over={"teacher.follows": list(range(len(ARGS.teachers)))},
            seeds=ARGS.seeds, steps=ARGS.steps, out=None if ARGS.keep_nothing else ARGS.out / "sweep",
            callback=lambda progress: line(progress) is not False and time.monotonic() < until,
        )  # fmt: skip
    for name, teacher, result in zip(ARGS.teachers, strategies.each, found.results, strict=True):
        folder = ARGS.out / "strategies" / name.replace(":", "-")
        if not folder.exists():
            following(teacher, result).save(folder)
        per_second = result.timing["steps_per_second"] * len(ARGS.teachers)
        print(f"{name}: {result.ret[:, -1].mean():.1f}, all strategies together {per_second:,.0f} steps/s", flush=True)


def strategy(name: str, space: TaskSpace) -> Any:
    strategy, _, variant = name.partition(":")
    return procurl.make_teacher(strategy, space, variant=variant or "paper")


def following(teacher: Any, result: Result) -> Result:
    """A point of the sweep as the run of the strategy that it followed."""
    provenance = {k: v for k, v in result.provenance.items() if k not in ("sweep", "classes")}
    return dataclasses.replace(
        result,
        config={**result.config, **describe_teacher(teacher)},
        provenance={**provenance, "shared": ARGS.teachers},
    )


@pytree
@dataclass(frozen=True, eq=False, repr=False)
class Strategies:
    each: tuple[Any, ...]
    names: tuple[str, ...] = dataclasses.field(metadata={"static": True})

    def __repr__(self) -> str:
        return " ".join(self.names)


@pytree
@dataclass(frozen=True, eq=False)
class OneOf:
    """A teacher that has several strategies and follows one of them, a different one in each seed."""

    space: TaskSpace
    strategies: Strategies
    follows: float = param(0.0, "number of the strategy")

    def init(self, key: Any) -> tuple[Any, ...]:
        return tuple(strategy.init(key) for strategy in self.strategies.each)

    def propose(self, state: tuple[Any, ...], key: Any, n: int) -> Task:
        proposed = [strategy.propose(own, key, n) for strategy, own in zip(self.strategies.each, state, strict=True)]
        return jax.tree.map(lambda *x: jnp.stack(x)[jnp.int32(self.follows)], *proposed)

    def observe(self, state: tuple[Any, ...], key: Any, episodes: Episodes, critic: Critic) -> tuple[Any, ...]:
        return tuple(
            strategy.observe(own, key, episodes, critic)
            for strategy, own in zip(self.strategies.each, state, strict=True)
        )


if __name__ == "__main__":
    main()
