"""Prompt curricula: what a batch costs, whether pass rates are believed rightly, what simulated students make of it.

    python benchmarks/prompts.py speed         a batch of 128 out of a million prompts, against the plain computation
    python benchmarks/prompts.py calibration   writes docs/images/prompts-reliability.png
    python benchmarks/prompts.py students      the three strategies with simulated students

The students are those of `prompt_students.py`. Nothing here is a language model: see docs/prompts.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from prompt_students import Student, student

import procurl
from procurl.prompts import PromptCurriculum, sampling

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "prompts-reliability.png"
STRATEGIES = ("procurl-target", "procurl-unif", "uniform")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "calibration", "students"])
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    {"speed": speed, "calibration": calibration, "students": students}[args.what](args)
    print(machine_line())


def machine_line() -> str:
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return (
        f"{processor}, {len(os.sched_getaffinity(0))} cores (load {busy}); Python {platform.python_version()}, numpy "
        f"{np.__version__}, procurl {procurl.__version__}, {time.strftime('%Y-%m-%d')}"
    )


# ---------------------------------------------------------------- speed


def speed(args: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((args.prompts, args.dimensions), dtype=np.float32)
    targets = rng.standard_normal((args.targets, args.dimensions), dtype=np.float32)
    print(f"{args.prompts:,} prompts x {args.targets:,} targets, {args.dimensions} dimensions, batches of {args.batch}")
    for strategy in STRATEGIES:
        began = time.perf_counter()
        curriculum = PromptCurriculum(args.prompts, embeddings, targets, strategy)
        made = time.perf_counter() - began
        batch, record, cpu = [], [], []
        for _ in range(60):
            began, worked = time.perf_counter(), time.process_time()
            ids = curriculum.batch(args.batch)
            batch.append(time.perf_counter() - began)
            cpu.append(time.process_time() - worked)
            began = time.perf_counter()
            curriculum.record(ids, rng.integers(0, 9, args.batch))
            record.append(time.perf_counter() - began)
        began = time.perf_counter()
        saved = sum(np.asarray(v).nbytes for v in curriculum.state_dict().values())
        state = time.perf_counter() - began
        print(
            f"{strategy}: batch {in_ms(batch)} (of processor time {in_ms(cpu)}), record {in_ms(record)}; made in "
            f"{made:.2f} s, state of {saved / 2**20:.1f} MiB in {state * 1e3:.0f} ms"
        )
        if strategy == "procurl-target":
            began = time.perf_counter()
            plain_batch(curriculum, args.batch)
            full = time.perf_counter() - began
            print(f"  all prompts in place of candidates: {full:.2f} s, {full / statistics.median(batch):.0f} times")


def in_ms(seconds: list[float]) -> str:
    quick, median, slow = np.quantile(seconds[5:], [0.1, 0.5, 0.9]) * 1e3
    return f"{median:.1f} ms [{quick:.1f}, {slow:.1f}]"


def plain_batch(curriculum: PromptCurriculum, n: int) -> np.ndarray:
    """The formula over all prompts, in chunks."""
    pull = sampling.pull(curriculum._target_posterior().sample(np.random.default_rng(0)), curriculum.hope)
    score, rng = [], np.random.default_rng(1)
    for first in range(0, curriculum.n, 4096):
        rows = np.arange(first, min(first + 4096, curriculum.n))
        directions = curriculum._directions(rows)
        z = sampling.potential(curriculum._posterior(rows, directions).sample(rng))
        score.append(z * sampling.similarity(directions, curriculum._targets.directions, pull))
    return sampling.draw(sampling.log_weights(np.concatenate(score), curriculum.b), n, rng)


# ---------------------------------------------------------------- calibration


def calibration(args: argparse.Namespace) -> None:
    """Believed and true pass rates of 200 random prompts every 10 steps: students that learn, and one that does not."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.5), layout="constrained")
    panels = (
        ("A student that learns", {"rate": 0.02}, True),
        ("A student that does not learn", {"rate": 0.0}, True),
        ("Learns; no embeddings", {"rate": 0.02}, False),
    )
    for axes, (title, options, with_embeddings) in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
        found = np.concatenate([believed_and_true(seed, options, with_embeddings) for seed in range(args.seeds)])
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        for played, colour, marker in ((1, "#D55E00", "o"), (0, "#0072B2", "s")):
            mean, true, low, high = found[found[:, 2] == played].T[[0, 1, 3, 4]]
            name = "played before" if played else "never played"
            inside = np.mean((low <= true) & (true <= high))
            x, y, error = reliability(mean, true)
            axes.plot(x, y, color=colour, marker=marker, markersize=4, label=f"{name}: error {error:.3f}")
            rmse, bias = np.sqrt(np.mean((mean - true) ** 2)), np.mean(mean - true)
            print(
                f"{title}, {name}: calibration error {error:.3f}, bias {bias:+.3f}, root mean square {rmse:.3f} (a "
                f"constant: {np.std(true):.3f}), 80 % intervals hold {inside:.0%}; {len(mean):,} beliefs"
            )
        axes.set(title=title, xlabel="believed pass rate", xlim=(0, 1), ylim=(0, 1))
        axes.legend(frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("true pass rate, mean")
    figure.savefig(FIGURE, dpi=150)
    print(FIGURE.name)


def believed_and_true(seed: int, options: dict[str, float], with_embeddings: bool) -> np.ndarray:
    """Rows of mean, truth, whether it was played, and the ends of the 80 % interval."""
    rng = np.random.default_rng([1, seed])
    learner = student(2000, rng, **options)  # type: ignore[arg-type]
    curriculum = PromptCurriculum(2000, learner.embeddings if with_embeddings else None, seed=seed)
    rows = []
    for t in range(150):
        ids = np.array(curriculum.batch(32))
        if t % 10 == 9:
            some = rng.choice(2000, 200, replace=False)
            posterior, played = curriculum._posterior(some), curriculum._pass_rates.seen_at[some] >= 0
            low, high = np.quantile(rng.beta(posterior.a, posterior.b, size=(400, 200)), [0.1, 0.9], axis=0)
            rows.append(np.stack([posterior.mean, learner.pass_rates()[some], played, low, high], axis=1))
        curriculum.record(ids, learner.play(ids, 8, rng))
    return np.concatenate(rows)


def reliability(believed: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Means in ten bins of at least 30 beliefs, and the mean distance between both."""
    bins = np.minimum((believed * 10).astype(int), 9)
    there = [k for k in range(10) if (bins == k).sum() >= 30]
    x, y = (np.array([values[bins == k].mean() for k in there]) for values in (believed, true))
    share = np.array([(bins == k).mean() for k in there])
    return x, y, float(np.sum(np.abs(x - y) * share) / share.sum())


# ---------------------------------------------------------------- students


def students(args: argparse.Namespace) -> None:
    """Pass rate on held-out targets, after 150 batches of 32 and in the mean over them."""
    worlds = {
        "hard prompts of two topics of eight": {"topics": (0, 1)},
        "hard prompts of all topics": {"topics": tuple(range(8))},
        "two topics, embeddings that say nothing": {"topics": (0, 1), "blind": True},
    }
    for name, options in worlds.items():
        print(name)
        for strategy in STRATEGIES:
            curves = np.array([trained(seed, strategy, **options) for seed in range(args.seeds)])  # type: ignore[arg-type]
            print(f"  {strategy:15} final {with_error(curves[:, -1])}, mean over training {with_error(curves.mean(1))}")


def with_error(values: np.ndarray) -> str:
    return f"{values.mean():.3f} +- {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def trained(seed: int, strategy: str, topics: tuple[int, ...], blind: bool = False, batches: int = 150) -> np.ndarray:
    """The mean pass rate of the targets after each batch."""
    rng = np.random.default_rng([2, seed])
    learner: Student = student(2000, rng)
    there = np.flatnonzero(np.isin(np.argmax(learner.parts, axis=1), topics))
    targets = there[np.argsort(learner.difficulty[there])[-50:]]
    embeddings = rng.normal(size=(2000, 32)) if blind else learner.embeddings
    curriculum = PromptCurriculum(2000, embeddings, targets.tolist(), strategy, seed=seed, hold_out=True)  # type: ignore[arg-type]
    curve = []
    for _ in range(batches):
        ids = np.array(curriculum.batch(32))
        curriculum.record(ids, learner.play(ids, 8, rng))
        curve.append(learner.pass_rates()[targets].mean())
    return np.array(curve)


if __name__ == "__main__":
    main()
