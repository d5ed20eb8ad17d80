"""Make the pictures of docs/idea.md, docs/choosing.md and docs/settings/README.md.

They come from a short run (one seed, 614,400 steps; about a minute) and from the recorded results.

python tools/idea_pictures.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm, Normalize

import procurl
import procurl.integrations.gymnasium
from procurl.bench.report import recorded
from procurl.bench.report.figures import canvas
from procurl.bench.report.style import COLOURS, NAMES
from procurl.bench.stats import bootstrap_interval
from procurl.students.critic import StudentCritic
from procurl.students.policy import unflatten
from procurl.teachers.procurl import learning_potential

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"
MOMENTS = (256_000, 460_800, 563_200, 614_400)  # steps at which the run is looked at
SHOWN = 2  # the moment at which the rule's factors are shown
SEED = 3  # it has found the gate by then, as three of the first four seeds have
BETA = 130.0
GRID = 60  # gates along each axis of the maps
TASKS = {"an easy task": (0.0, 6.0, 0.5), "a harder one": (0.6, 2.0, 2.0), "the target": (0.9, 0.5, 3.5)}
RECORDED = {
    "point-mass-1t": "paper-point-mass-1t",
    "point-mass-2g": "paper-point-mass-2g",
    "maze-plane": "paper-maze-plane",
    "minigrid, release's student": "release-minigrid",
}


class Maps(NamedTuple):
    """Over gates of every position (columns) and width (rows), at the target's friction."""

    value: np.ndarray
    potential: np.ndarray
    correlation: np.ndarray
    probability: np.ndarray


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    canvas.save(tasks_picture(), IMAGES / "idea-tasks.png")
    canvas.save(worlds_picture(), ROOT / "docs/settings/images/worlds.png")
    canvas.save(choosing_picture(), IMAGES / "choosing.png")
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(Path(folder) / "run", steps) for steps in MOMENTS]
    print("return on the target:", [f"{at:,}: {x:.2f}" for at, x in zip(runs[-1].steps, runs[-1].ret[0], strict=True)])
    moments = [maps(result) for result in runs]
    canvas.save(terms_picture(moments[SHOWN]), IMAGES / "idea-terms.png")
    canvas.save(moments_picture(moments, runs), IMAGES / "idea-moments.png")


def run(folder: Path, steps: int) -> Any:
    """The same run, taken further each time."""
    env, space = procurl.make("point-mass-1t")
    teacher = procurl.make_teacher("procurl-target", space)
    return procurl.train(
        env, teacher, procurl.preset("point-mass-1t"), seeds=[SEED], steps=steps, out=folder, resume="extend"
    )


def maps(result: Any) -> Maps:
    """What ProCuRL-Target sees in a student."""
    env, space = procurl.make("point-mass-1t")
    critic = StudentCritic(env, unflatten({k: v[0] for k, v in result.params.items()}))
    target = np.array(space.held_out.context[0])
    position, width = np.meshgrid(np.linspace(-4, 4, GRID), np.linspace(0.5, 8, GRID))
    gates = np.stack([position.ravel(), width.ravel(), np.full(GRID * GRID, target[2])], axis=1)

    def potential(contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(contexts)
        tasks = procurl.Task(jnp.asarray(contexts, jnp.float32), jnp.zeros(n, jnp.int32), jnp.full(n, -1, jnp.int32))
        value = critic.value(tasks)
        return np.asarray(value), np.asarray(learning_potential(value, space))

    value, z = potential(gates)
    z_target = potential(target[None])[1][0]
    k = np.exp(-np.linalg.norm(gates - target, axis=1))
    weight = np.exp(BETA * z * z_target * k)
    return Maps(*(x.reshape(GRID, GRID) for x in (value, z, k, weight / weight.mean())))


def show(
    axes: Any, image: np.ndarray, title: str, cmap: str, high: float | None = None, log: float | None = None
) -> Any:
    """A map over gates, from 0 to `high`; or from 1 to `log` on a logarithmic scale."""
    norm = LogNorm(1, log) if log else Normalize(0, high)
    drawn = axes.imshow(
        np.maximum(image, 1) if log else image,
        origin="lower",
        extent=(-4, 4, 0.5, 8),
        aspect="auto",
        cmap=cmap,
        norm=norm,
    )
    axes.plot(0.9, 0.5, "x", color="#D55E00", markersize=9, markeredgewidth=2, clip_on=False)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("gate position")
    return drawn


def terms_picture(found: Maps) -> Any:
    """The factors of the rule, side by side, for one student."""
    figure, row = plt.subplots(1, 4, figsize=(11, 3.0), layout="constrained", sharey=True)
    parts = (
        (found.value, "V: how well it goes", "viridis", 1.0, None),
        (found.potential, "Z = V (1 - V): what can be learnt", "viridis", 0.25, None),
        (found.correlation, "K: near to the target", "viridis", 1.0, None),
        (found.probability, "chosen, times uniform", "magma", None, found.probability.max()),
    )
    for axes, (image, title, cmap, high, log) in zip(row, parts, strict=True):
        figure.colorbar(show(axes, image, title, cmap, high, log), ax=axes)
    row[0].set_ylabel("gate width")
    return figure


def moments_picture(found: list[Maps], runs: list[Any]) -> Any:
    """Above: how well the student does; below: where the teacher sends it, and the tasks that it drew."""
    figure, grid = plt.subplots(2, len(found), figsize=(11, 5.4), layout="constrained", sharex=True, sharey=True)
    for column, (at, result, steps) in enumerate(zip(found, runs, MOMENTS, strict=True)):
        value = show(grid[0, column], at.value, f"V after {steps:,} steps", "viridis", 1.0)
        highest = max(m.probability.max() for m in found)
        chosen = show(grid[1, column], at.probability, "chosen next (dots: drawn)", "magma", log=highest)
        drawn = result.trace["task_context"][0, -5:].reshape(-1, 3)
        drawn = drawn[np.isfinite(drawn[:, 0])]
        grid[1, column].plot(drawn[:, 0], drawn[:, 1], ".", color="white", markersize=3)
        grid[0, column].set_xlabel("")
    figure.colorbar(value, ax=grid[0])
    figure.colorbar(chosen, ax=grid[1], label="times uniform")
    for axes in grid[:, 0]:
        axes.set_ylabel("gate width")
    return figure


def tasks_picture() -> Any:
    """Three tasks of Point Mass Sparse, as the environment draws them."""
    env = gymnasium.make("procurl/PointMass-v0", render_mode="rgb_array")
    return pictures(env, TASKS)


def worlds_picture() -> Any:
    """Point Mass and the maze, with a target each."""
    figure, row = plt.subplots(1, 2, figsize=(7, 3.8), layout="constrained")
    worlds = {
        "Point Mass Sparse": ("procurl/PointMass-v0", (0.9, 0.5, 3.5)),
        "Sparse Goal Reaching": ("procurl/Maze-v0", (6, 6, 0.05)),
    }
    for axes, (title, (name, context)) in zip(row, worlds.items(), strict=True):
        env = gymnasium.make(name, render_mode="rgb_array")
        env.reset(options={"context": context, "task_seed": 0})
        frame(axes, env.render(), title)
    return figure


def pictures(env: Any, tasks: dict[str, tuple[float, ...]]) -> Any:
    figure, row = plt.subplots(1, len(tasks), figsize=(3 * len(tasks), 3.7), layout="constrained")
    for axes, (title, context) in zip(row, tasks.items(), strict=True):
        env.reset(options={"context": context, "task_seed": 0})
        position, width, friction = context
        frame(axes, env.render(), f"{title}\ngate at {position}, width {width}, friction {friction}")
    return figure


def frame(axes: Any, picture: np.ndarray, title: str) -> None:
    axes.imshow(picture)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()


def choosing_picture() -> Any:
    """Final return of every strategy with its 95 % interval, a panel for each comparison that is recorded."""
    figure, row = plt.subplots(1, len(RECORDED), figsize=(11, 5.6), layout="constrained", sharey=True)
    order = [*COLOURS][::-1]  # from below
    for axes, (title, stem) in zip(row, RECORDED.items(), strict=True):
        rows = recorded.read(ROOT / f"benchmarks/results/{stem}.json") or []
        for strategy in rows:
            name = strategy.teacher["class"]
            # of the settings with two students the release's strategies belong to the release's student
            release = strategy.variant == "release"
            low, high = bootstrap_interval(strategy.final)
            y = order.index(name) + (-0.18 if release else 0.18 if name in ("ProCuRLTarget", "CURROT") else 0.0)
            mean = strategy.final.mean()
            axes.plot([low, high], [y, y], color=COLOURS[name], linewidth=2)
            axes.plot(mean, y, "D" if release else "o", color=COLOURS[name], fillstyle="none" if release else "full")
        axes.set_title(f"{title}\n{len(rows[0].final)} seeds, {rows[0].steps[-1]:,} steps", fontsize=9)
        axes.set_xlim(-0.02, 1.02)
        canvas.finish(axes, "return on the target", "")
    row[0].set_yticks(range(len(order)), [NAMES.get(name, name) for name in order])
    return figure


if __name__ == "__main__":
    main()
