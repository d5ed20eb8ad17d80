"""Chooses the difficulty and GRPO's learning rate for prompts_grpo.py, on seeds that its comparison does not use.

    python benchmarks/prompts_grpo_calibrate.py --size 10M --device cuda --jobs 14

First the supervised start: of several lengths and shares of the target family, that whose pass rate on the target is
nearest to 5 %, where shorter products are known. Then GRPO's learning rate, from that start: the one with which a
uniform draw and the target family alone get furthest. No run of a curriculum has a say in it. What was chosen is
printed as options of prompts_grpo.py.
"""

from __future__ import annotations

import argparse
import itertools
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpo
import numpy as np
import prompts_grpo as experiment
import torch
from arithmetic import FAMILIES, TARGET

from procurl.bench.report.tables import text_table

SEEDS = (900, 901)
WANTED = 0.05  # pass rate of the start on the target
KNOWN, ENOUGH = "2x1", 0.7  # a start must pass so many of these
STRATEGIES = ("uniform", "target")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(grpo.SIZES), default="10M")
    parser.add_argument("--device", default="cpu", help="torch's name of it")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--steps", type=int, nargs="+", default=[400, 800], help="updates of the start")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.01, 0.03, 0.1, 0.3], help="of the target in it")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-5, 1e-4, 3e-4], help="learning rates of GRPO")
    parser.add_argument("--samples", type=int, default=102_400, help="of GRPO, for each learning rate")
    parser.add_argument("--starts", type=Path, default=Path("runs/prompts-grpo"), help="folder of supervised starts")
    args = parser.parse_args()
    args.starts.mkdir(parents=True, exist_ok=True)
    with experiment.workers(args.jobs, args.device) as pool:
        print(pool.submit(check, grpo.SIZES[args.size], args.device).result(), flush=True)
        starts = [
            replace(grpo.SIZES[args.size], start_steps=steps, target_weight=weight, samples=args.samples)
            for steps, weight in itertools.product(args.steps, args.weights)
        ]
        size = chosen_start(pool, starts, args)
        rate = chosen_rate(pool, [replace(size, rate=rate) for rate in args.rates], args)
    print(f"\n--set start_steps={size.start_steps} target_weight={size.target_weight:g} rate={rate:g}")


def check(size: grpo.Size, device: str) -> str:
    """What is recorded and replayed on a GPU computes what the functions compute, on inputs that are new to it."""
    problems, _ = experiment.problems(SEEDS[0])
    model = grpo.Transformer(size).to(device)
    learner = grpo.Learner(model, torch.optim.Adam(model.parameters()), experiment.GROUP, seed=0)
    for rows in np.split(np.arange(2 * size.batch), 2):
        answers, rewards = learner.rollouts(problems[rows])
        prompt, truth = learner.tensors(problems[rows].prompt, problems[rows].answer)
        assert torch.equal(rewards, grpo.right(answers, truth))
        weight = torch.randn_like(rewards)
        replayed = torch.cat([x.flatten() for x in learner.policy_gradient(prompt, answers, weight)])
        plain = torch.cat([x.flatten() for x in grpo.policy_gradient(model, prompt, answers, weight)])
        error = float((replayed - plain).norm() / plain.norm())
        assert error < 1e-2, error
    # First characters, copied: what is replayed writes all its draws to one place.
    first = torch.cat([learner.rollouts(problems[rows])[0][..., 0].flatten().clone() for _ in range(100)])
    with torch.no_grad():
        expected = model.head(model.hidden(prompt)[0][:, -1]).softmax(dim=1).mean(dim=0)
    drawn = torch.bincount(first, minlength=len(expected)) / len(first)
    distance = float((drawn - expected).abs().max())
    assert distance < 5 * 0.5 / len(first) ** 0.5, distance  # five standard errors of a share
    return f"replayed gradients differ by {error:.0e}, frequencies of {len(first):,} draws by {distance:.0e}"


def chosen_start(pool: ProcessPoolExecutor, sizes: list[grpo.Size], args: argparse.Namespace) -> grpo.Size:
    began = time.perf_counter()
    asked = [[pool.submit(experiment.start, s, args.device, seed, args.starts) for seed in SEEDS] for s in sizes]
    rates = [[future.result() for future in each] for each in asked]
    mean = {
        size: {f.name: float(np.mean([r[f.name] for r in each])) for f in FAMILIES}
        for size, each in zip(sizes, rates, strict=True)
    }
    table = [[str(s.start_steps), f"{s.target_weight:g}", *(f"{x:.3f}" for x in mean[s].values())] for s in sizes]
    print(text_table(["steps", "target weight", *(f.name for f in FAMILIES)], table))
    print(f"{time.perf_counter() - began:.0f} s\n", flush=True)
    known = [s for s in sizes if mean[s][KNOWN] >= ENOUGH] or sizes
    return min(known, key=lambda s: abs(log_odds(mean[s][TARGET.name]) - log_odds(WANTED)))


def log_odds(p: float) -> float:
    return float(np.log((p + 1e-6) / (1 - p + 1e-6)))


def chosen_rate(pool: ProcessPoolExecutor, sizes: list[grpo.Size], args: argparse.Namespace) -> float:
    began = time.perf_counter()
    asked = [[pool.submit(experiment.run, n, s, args.device, SEEDS[0], args.starts) for n in STRATEGIES] for s in sizes]
    curves = [[np.array(future.result()["target_pass_rate"]) for future in each] for each in asked]
    table = [
        [f"{s.rate:g}", *(" ".join(f"{x:.2f}" for x in c) for c in each)] for s, each in zip(sizes, curves, strict=True)
    ]
    print(text_table(["learning rate", *STRATEGIES], table))
    seconds, samples = time.perf_counter() - began, len(sizes) * len(STRATEGIES) * args.samples
    print(f"{seconds:.0f} s for {samples:,} samples: {1e3 * seconds / samples:.2f} s for a thousand")
    return sizes[int(np.argmax([np.mean(each) for each in curves]))].rate


if __name__ == "__main__":
    main()
