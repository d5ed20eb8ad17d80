"""The same policies in both simulators of the Bipedal Walker: does it matter which one a student is tested in?

    procurl train bipedal --steps 1M --out runs/box2d
    procurl train bipedal-jax --steps 1M --seeds 2 --out runs/jax
    python benchmarks/bipedal_policies.py runs/box2d runs/jax --out benchmarks/results/bipedal-policies.md

Every seed of every run folder plays the test grid's 100 tasks several times, each time with other stumps: the same
tracks and the same pushes in Box2D and in JAX, the most likely actions. A single episode soon goes another way, since
contacts are chaotic, so that means are compared: of the return, relative to the range of returns, and the share of
mastered tasks. Beside them stands the difference that two halves of Box2D's own episodes have by chance.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from measure import machine_line

import procurl
from procurl.bench.report.tables import text_table
from procurl.bench.stats import bootstrap_difference
from procurl.devices import available_cores
from procurl.envs.bipedal.jax_walker.body import PUSH
from procurl.envs.bipedal.jax_walker.env import JaxWalker, begin
from procurl.envs.bipedal.jax_walker.terrain import Terrain, terrain_of
from procurl.envs.bipedal.space import VALUE_RANGE, grid_tasks
from procurl.envs.bipedal.stump_tracks import StumpTracks
from procurl.envs.bipedal.track import MAX_STEPS, make_track
from procurl.envs.host_tasks import HostTask
from procurl.programs import pytree
from procurl.runs.evaluation import evaluate
from procurl.runs.host.workers import Workers
from procurl.students.policy import actors, unflatten
from procurl.types import Continuous, Task

WIDTH = VALUE_RANGE[1] - VALUE_RANGE[0]
BOUND = 0.05  # of the range of returns, and of the tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=5, help="tracks of each test task")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tasks = test_tasks(args.repeats)
    workers = Workers(partial(StumpTracks, max_steps=MAX_STEPS), 0, available_cores())
    rows = []
    for run in args.runs:
        result = procurl.load_result(run)
        for s, seed in enumerate(result.seeds.tolist()):
            params = {name: x[s] for name, x in result.params.items()}
            box = np.array([(x.ret, x.success) for x in workers.episodes([actors(params)], [(0, t) for t in tasks])])
            ours = np.array(play(unflatten(params), tasks)).T
            rows.append(row(f"{result.config['setting']}, {result.steps[-1]:,} steps, seed {seed}", box, ours))
            print(rows[-1], flush=True)
    workers.close()
    head = [
        "policy",
        "return: Box2D",
        "JAX",
        "difference",
        "95 % interval",
        "by chance",
        "mastered: Box2D",
        "JAX",
        "holds",
    ]
    text = f"{text_table(head, rows)}\n\n{len(tasks)} episodes each. {machine_line('box2d', 'gymnasium')}\n"
    print(text)
    if args.out:
        args.out.write_text(f"# The same policies in both simulators\n\n{text}")


def test_tasks(repeats: int) -> list[HostTask]:
    contexts = np.asarray(grid_tasks().context)
    return [HostTask(c, repeat * len(contexts) + k, -1) for repeat in range(repeats) for k, c in enumerate(contexts)]


def play(params: Any, tasks: list[HostTask]) -> tuple[Any, Any]:
    """Returns and successes in JAX."""
    numbers = np.arange(len(tasks), dtype=np.int32)
    named = Task(np.stack([t.context for t in tasks]), numbers, numbers)  # type: ignore[arg-type]
    scores = jax.jit(evaluate, static_argnums=4)(on_tracks(tasks), params, named, jax.random.key(0), 1)
    return np.asarray(scores.ret), np.asarray(scores.success)


@pytree
@dataclass(frozen=True, eq=False)
class OnTracks:
    """The walker in JAX on tracks that were drawn before; a task's seed is the number of its track."""

    terrain: Terrain
    push: Any  # f32[n]

    obs_size: ClassVar[int] = 24
    action: ClassVar[Continuous] = JaxWalker.action
    truncates: ClassVar[bool] = True
    max_steps: ClassVar[int] = MAX_STEPS

    def reset(self, task: Task) -> Any:
        return begin(jax.tree.map(lambda x: x[task.seed], self.terrain), self.push[task.seed])

    def step(self, key: Any, state: Any, action: Any) -> Any:
        return JaxWalker().step(key, state, action)


def on_tracks(tasks: list[HostTask]) -> OnTracks:
    """The tracks and pushes that Gymnasium's generator gives to Box2D's walker."""
    terrains, pushes = [], []
    for task in tasks:
        rng = seeding.np_random(task.seed)[0]
        terrains.append(terrain_of(make_track(task.context, rng)))
        pushes.append(rng.uniform(-PUSH, PUSH))
    return OnTracks(jax.tree.map(lambda *x: jnp.stack(x), *terrains), jnp.array(pushes, jnp.float32))


def row(name: str, box: np.ndarray, ours: np.ndarray) -> list[str]:
    gap, mastered = ours.mean(axis=0) - box.mean(axis=0)
    low, high = bootstrap_difference(ours[:, 0], box[:, 0]) / WIDTH
    by_chance = abs(box[::2, 0].mean() - box[1::2, 0].mean()) / WIDTH
    holds = abs(gap) / WIDTH < BOUND and abs(mastered) < BOUND
    return [
        name, f"{box[:, 0].mean():.1f}", f"{ours[:, 0].mean():.1f}", f"{gap / WIDTH:+.1%}",
        f"[{low:+.1%}, {high:+.1%}]", f"{by_chance:.1%}", f"{box[:, 1].mean():.1%}", f"{ours[:, 1].mean():.1%}",
        "yes" if holds else "NO",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
