"""Does a curriculum over prompts help GRPO on a target, and does knowing the target help beyond learnability alone?

    python benchmarks/prompts_grpo.py --size small --seeds 1000-1007 --jobs 2        # on two cores
    python benchmarks/prompts_grpo.py --size 10M --device cuda --jobs 14             # on a GPU, with 16 cores beside it

A small transformer is supervised on easy arithmetic, once per seed; then every strategy has the same number of samples
for GRPO from that start. What counts is the pass rate on held-out problems of the target family, 3-digit times 1-digit
products. Strategies:

    uniform         prompts of the pool, uniform
    target          the pool's prompts of the target family, uniform
    learnability    of prompts tried out, those with the largest p (1 - p), as SFL does; trying out is paid for
    procurl-unif    of procurl.prompts, with embeddings from the start's hidden states ("-hidden") or, apart from that,
                    from problem features ("-features"), which only the pass-rate model needs
    procurl-target  the same with the same embeddings, hence the same pass-rate model; targets: the pool's own
    mixed           a third of each batch from the target family, the rest uniform: no curriculum, but about as much of
                    the target as ProCuRL-Target deals by features. Added when the outcome of the others was known.

Every finished run is added to OUT/prompts-grpo-SIZE.jsonl at once, and runs that are there are not repeated: what was
cut goes on. Seeds below 1000 are for choosing the difficulty and GRPO's learning rate, without procurl-target:
prompts_grpo_calibrate.py does that, and what it chooses is given here as --set.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported, here and in the processes that this one starts

import argparse
import json
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import arithmetic
import grpo
import numpy as np
import torch
from arithmetic import FAMILIES, TARGET, Problems
from prompt_baselines import Curriculum, Fixed, Learnability
from prompts import machine_line

from procurl.cli.common import seed_range
from procurl.prompts import PromptCurriculum
from procurl.runs.store import disk

GROUP = 8  # samples of a prompt
PER_FAMILY = 250  # problems of the pool, fewer where a family has fewer
HELD_OUT, HELD_OUT_OTHERS = 200, 60  # problems of the target family that are held out, and of every other one
EVERY_POOL = 4  # of the pool's problems, one in so many is asked for its true pass rate
EVALUATIONS = 12  # after the start's own
# Shares of the supervised start: easy families mostly, of hard ones as little as lets GRPO begin.
START = {
    "1+1": 1.0, "2+2": 2.0, "3+3": 3.0, "4+4": 0.3, "1-1": 1.0, "2-2": 2.0, "3-3": 3.0, "4-4": 0.3,
    "1x1": 2.0, "2x1": 8.0, "3x1": 0.1, "4x1": 0.02, "2x2": 0.05, "3x2": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """What all strategies of a seed share."""

    pool: Problems
    held_out: Problems  # of every family; those of the target were not in the start
    model: grpo.Transformer

    @property
    def is_target(self) -> np.ndarray:
        return self.pool.family == FAMILIES.index(TARGET)


STRATEGIES = (
    "uniform", "target", "learnability", "procurl-unif-hidden", "procurl-unif-features", "procurl-target-hidden",
    "procurl-target-features", "mixed",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(grpo.SIZES), default="small")
    parser.add_argument("--device", default="cpu", help="torch's name of it")
    parser.add_argument("--seeds", type=seed_range, default=range(1000, 1008), help="how many, or FIRST-LAST")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=NUMBER", help="fields of grpo.Size, by other values"
    )
    parser.add_argument("--starts", type=Path, default=Path("runs/prompts-grpo"), help="folder of supervised starts")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--commit", default="", help="of procurl, where git cannot tell")
    parser.add_argument("--picture", type=Path, help="draw the outcome into this file")
    args = parser.parse_args()
    for folder in (args.out, args.starts):
        folder.mkdir(parents=True, exist_ok=True)
    file, size = args.out / f"prompts-grpo-{args.size}.jsonl", changed(grpo.SIZES[args.size], args.set)
    machine = machine_of(args.device, args.commit)
    print(machine, flush=True)
    rows = read(file)
    require_same_size(rows, size, file)
    done = {(row["strategy"], row["seed"]) for row in rows}
    wanted = [(name, seed) for seed in args.seeds for name in args.strategies if (name, seed) not in done]
    with workers(args.jobs, args.device) as pool:
        seeds = dict.fromkeys(seed for _, seed in wanted)
        starts = {seed: pool.submit(start, size, args.device, seed, args.starts) for seed in seeds}
        for seed, start_future in starts.items():
            rates = " ".join(f"{family} {rate:.2f}" for family, rate in start_future.result().items())
            print(f"start of {seed}: {rates}", flush=True)
        runs = [pool.submit(run, name, size, args.device, seed, args.starts) for name, seed in wanted]
        for run_future in as_completed(runs):
            add(file, run_future.result() | {"machine": machine})
    import prompts_grpo_report

    prompts_grpo_report.write(read(file), args.out / f"prompts-grpo-{args.size}.md", args.picture)


def changed(size: grpo.Size, settings: list[str]) -> grpo.Size:
    """A size with some fields set as NAME=NUMBER."""
    given = dict(text.split("=") for text in settings)
    return replace(size, **{name: type(getattr(size, name))(text) for name, text in given.items()})


def require_same_size(rows: list[dict[str, Any]], size: grpo.Size, file: Path) -> None:
    for row in rows:
        if grpo.Size(**row["size"]) != size:
            raise SystemExit(
                f"{file} has runs of {row['size']}, but these would be of {asdict(size)}: give another --out"
            )


def workers(jobs: int, device: str) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, get_context("spawn"), initializer=prepare, initargs=(device,))


def prepare(device: str) -> None:
    """A process of its own for each run."""
    torch.set_num_threads(1)
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")  # products of 10-bit mantissas, sums of 32-bit numbers


def machine_of(device: str, commit: str) -> str:
    """Hardware and versions; JAX has no part in this and need not be there."""
    if not commit:
        ask = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
        commit = subprocess.run(ask, capture_output=True, text=True).stdout.strip() or "a copy without history"
    gpu = f"; {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else ""
    return f"{machine_line()}, torch {torch.__version__}, procurl at {commit}{gpu}"


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add(file: Path, row: dict[str, Any]) -> None:
    """One run more, whole or not at all."""
    rows = [*read(file), row]
    disk.replace(file, "".join(json.dumps(r) + "\n" for r in rows).encode())
    first, last = row["target_pass_rate"][0], row["target_pass_rate"][-1]
    print(f"{row['seed']} {row['strategy']:24} {first:.3f} -> {last:.3f}, {row['seconds']:.0f} s", flush=True)


def problems(seed: int) -> tuple[Problems, Problems]:
    """Pool and held-out problems, no two alike where a family has enough of them."""
    rng = np.random.default_rng([seed, 0])
    held_out, pool = [], []
    for f, family in enumerate(FAMILIES):
        held_out.append(arithmetic.draw_distinct(f, HELD_OUT if family == TARGET else HELD_OUT_OTHERS, rng))
        few = family.first == 1  # 36 or 64 problems in all, which may be in both
        pool.append(arithmetic.draw_distinct(f, PER_FAMILY, rng, None if few else held_out[-1].operands))
    return arithmetic.joined(pool), arithmetic.joined(held_out)


def file_of(size: grpo.Size, seed: int, folder: Path) -> Path:
    """Of the supervised start, which depends on nothing else."""
    shape = f"{size.width}x{size.layers}-{size.start_steps}x{size.start_batch}"
    return folder / f"{shape}-{size.start_rate:g}-{size.target_weight:g}-{seed}.npz"


def start(size: grpo.Size, device: str, seed: int, folder: Path) -> dict[str, float]:
    """The supervised start of a seed, from disk if it is there: its pass rates by family."""
    file = file_of(size, seed, folder)
    if file.exists():
        world = world_of(size, device, seed, folder)
        return by_family(world.model, world.held_out)
    rng = np.random.default_rng([seed, 1])
    torch.manual_seed(seed)
    model = grpo.Transformer(size).to(device)
    _, held_out = problems(seed)
    reserved = held_out[held_out.family == FAMILIES.index(TARGET)]
    mixture = START | {TARGET.name: size.target_weight}
    share = np.array([mixture[f.name] for f in FAMILIES])
    optimiser = torch.optim.AdamW(model.parameters(), lr=size.start_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, size.start_rate, total_steps=size.start_steps)
    learner = grpo.Learner(model, optimiser, GROUP, seed)
    for _ in range(size.start_steps):
        batch = arithmetic.draw(rng.choice(len(FAMILIES), size.start_batch, p=share / share.sum()), rng)
        learner.supervised_step(batch[~arithmetic.among(batch, reserved)])
        schedule.step()
    disk.replace(file, disk.to_npz({name: x.cpu().numpy() for name, x in model.state_dict().items()}))
    return by_family(model, held_out)


def world_of(size: grpo.Size, device: str, seed: int, folder: Path) -> World:
    pool, held_out = problems(seed)
    model = grpo.Transformer(size)
    weights = disk.from_npz(file_of(size, seed, folder).read_bytes())
    model.load_state_dict({name: torch.from_numpy(x.copy()) for name, x in weights.items()})
    return World(pool, held_out, model.to(device))


def by_family(model: grpo.Transformer, held_out: Problems) -> dict[str, float]:
    rates = grpo.pass_rate(model, held_out)
    return {f.name: round(float(rates[held_out.family == i].mean()), 5) for i, f in enumerate(FAMILIES)}


def curriculum_of(name: str, world: World, seed: int, try_out: Any) -> Curriculum:
    if name == "uniform":
        return Fixed(np.arange(len(world.pool)), seed)
    if name == "target":
        return Fixed(np.flatnonzero(world.is_target), seed)
    if name == "mixed":
        return Fixed(np.flatnonzero(~world.is_target), seed, np.flatnonzero(world.is_target), share=1 / 3)
    if name == "learnability":
        return Learnability(len(world.pool), try_out, seed)
    hidden = name.endswith("-hidden")
    vectors = grpo.embeddings(world.model, world.pool) if hidden else arithmetic.features(world.pool)
    return PromptCurriculum(
        len(world.pool), vectors, np.flatnonzero(world.is_target),
        "procurl-target" if name.startswith("procurl-target") else "procurl-unif", GROUP, seed, center=True,
    )  # fmt: skip


def run(name: str, size: grpo.Size, device: str, seed: int, folder: Path) -> dict[str, Any]:
    """GRPO with one strategy, from the seed's start until the samples are used up."""
    began, world = time.perf_counter(), world_of(size, device, seed, folder)
    optimiser = torch.optim.Adam(world.model.parameters(), lr=size.rate, betas=(0.9, 0.95))
    learner = grpo.Learner(world.model, optimiser, GROUP, seed)
    drawn = 0

    def try_out(rows: np.ndarray, samples: int) -> np.ndarray:
        nonlocal drawn
        drawn += len(rows) * samples
        return learner.try_out(world.pool[rows], samples)

    curriculum = curriculum_of(name, world, seed, try_out)
    kind = np.array([arithmetic.KINDS.index(arithmetic.kind(f)) for f in FAMILIES])[world.pool.family]
    found: list[dict[str, Any]] = []
    dealt, telling = np.zeros(len(arithmetic.KINDS)), 0
    while True:
        if drawn >= len(found) * size.samples / EVALUATIONS:
            found.append(evaluation(world, curriculum, drawn) | {"dealt": dealt.tolist(), "telling": telling})
            dealt, telling = np.zeros(len(arithmetic.KINDS)), 0
        if drawn >= size.samples:
            break
        rows = np.array(curriculum.batch(size.batch))
        batch = world.pool[rows]
        answers, rewards = learner.rollouts(batch)
        passes = rewards.sum(dim=1).cpu().numpy()
        learner.grpo_step(batch, answers, rewards)  # a GPU goes on computing while the curriculum learns
        curriculum.record(rows, passes)
        drawn += len(rows) * GROUP
        dealt += np.bincount(kind[rows], minlength=len(dealt))
        telling += int(((passes > 0) & (passes < GROUP)).sum())
    columns = {key: [row[key] for row in found] for key in found[0]}
    seconds = round(time.perf_counter() - began, 1)
    return {"strategy": name, "seed": seed, "size": asdict(size), "group": GROUP, "seconds": seconds, **columns}


def evaluation(world: World, curriculum: Curriculum, drawn: int) -> dict[str, Any]:
    """Exact pass rates on held-out problems, which cost no samples, and the pass-rate model's error on the pool."""
    rates = by_family(world.model, world.held_out)
    found = {"samples": drawn, "target_pass_rate": rates[TARGET.name], "pass_rates": list(rates.values())}
    if isinstance(curriculum, PromptCurriculum):
        some = np.arange(0, len(world.pool), EVERY_POOL)
        error = np.abs(curriculum.pass_rates(some) - grpo.pass_rate(world.model, world.pool[some]))
        found["model_error"] = round(float(error.mean()), 4)
        found["effective_share"] = round(curriculum.summary()["effective_share"], 4)
    return found


if __name__ == "__main__":
    main()
