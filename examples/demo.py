"""What a curriculum is good for, on a laptop: four teachers in the maze, a table, pictures and a page.

make demo          (or: python examples/demo.py --setting point-mass-1t --seeds 32 --steps 1M)
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import procurl
from procurl.cli.common import step_count

TEACHERS = ("procurl-path", "procurl-target", "procurl-unif", "iid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="maze-plane")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=step_count, default=600_000)
    parser.add_argument("--out", type=Path, default=Path("demo-output"))
    args = parser.parse_args()
    replace_old_demo(args.out)

    procurl.use_cores()  # before JAX is imported
    from procurl.bench import report
    from procurl.bench.report import figures
    from procurl.bench.report.studies import collect
    from procurl.bench.report.tables import comparison
    from procurl.cli.progress import ProgressLine

    env, space = procurl.make(args.setting)
    results = {}
    for name in TEACHERS:
        teacher = procurl.make_teacher(name, space)
        with ProgressLine(f"{args.setting}, {name}, {args.seeds} seeds", every=15) as line:
            results[name] = procurl.train(
                env, teacher, procurl.preset(args.setting), seeds=args.seeds, steps=args.steps,
                out=args.out / name, callback=line, time_teacher=True,
            )  # fmt: skip

    pictures = figures.save_all(list(results.values()), args.out)
    page = report.write(args.out / "report.html", report.page(collect([args.out])))
    print(f"\n{comparison(results)}")
    print(f"\npictures: {', '.join(str(p) for p in pictures)}\nopen in a browser: {page}")
    print(f"\n{shown(results['procurl-path'], results['iid'])}")


def shown(ours: procurl.Result, iid: procurl.Result) -> str:
    """What the comparison says, in plain words."""
    from procurl.bench.stats import bootstrap_difference

    final, of_iid = (result.ret[~result.failed, -1] for result in (ours, iid))
    low, high = bootstrap_difference(final, of_iid)
    gap = f"{final.mean() - of_iid.mean():+.2f} (95 % interval {low:+.2f} to {high:+.2f})"
    where = f"On held-out target tasks, after the same {ours.steps[-1]:,} steps and with {len(final)} seeds each,"
    if low > 0:
        return (
            f"{where} students with the curriculum of ProCuRL-Path reach a mean return of {final.mean():.2f}, students "
            f"with uniform tasks {of_iid.mean():.2f}: {gap}. The curriculum helps, and not by chance."
        )
    return f"{where} ProCuRL-Path and uniform tasks differ by {gap}: with so few seeds or steps nothing is settled."


def replace_old_demo(out: Path) -> None:
    """A demo may be repeated: what an earlier one wrote is removed, anything else is left alone."""
    if not out.exists():
        return
    foreign = [p.name for p in out.iterdir() if not (p.name in (*TEACHERS, "report.html") or p.suffix == ".png")]
    if foreign:
        sys.exit(f"{out} holds files that no demo wrote ({', '.join(foreign[:3])}): choose another --out")
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
