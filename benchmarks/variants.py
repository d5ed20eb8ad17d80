"""Does a detail matter? Variants of ProCuRL-Target side by side: pairing, targets, when the teacher watches.

python benchmarks/variants.py --setting point-mass-1t --seeds 256 --steps 1M
"""

from __future__ import annotations

import argparse
import dataclasses

import procurl
from procurl.bench.stats import mean_and_error, with_error
from procurl.cli.common import seed_range, step_count

VARIANTS = {
    "pair": ({}, {}),
    "max": ({"pairing": "max"}, {}),
    "release": ({"pairing": "max", "resample_targets": True}, {}),
    "pair-after": ({}, {"watch_after_update": True}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="point-mass-1t")
    parser.add_argument("--seeds", type=seed_range, default=range(256))
    parser.add_argument("--steps", type=step_count, default=1_000_000)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--device", choices=["cpu", "gpu"])
    args = parser.parse_args()
    procurl.use_cores(device=args.device)
    env, space = procurl.make(args.setting)
    for name in args.variants:
        hyper_parameters, loop = VARIANTS[name]
        config = dataclasses.replace(procurl.preset(args.setting), **loop)
        teacher = procurl.make_teacher("procurl-target", space, **hyper_parameters)
        result = procurl.train(env, teacher, config, seeds=args.seeds, steps=args.steps)
        mean, error = mean_and_error(result.ret)
        curve = mean[:: max(1, len(mean) // 8)].round(3)
        print(f"{args.setting} {name:12} {with_error(mean[-1], error[-1])}  over training {curve}", flush=True)


if __name__ == "__main__":
    main()
