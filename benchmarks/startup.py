"""How long a user waits: the first answer of the command line, cold and with compiled programs in the cache.

    python benchmarks/startup.py

Each command is a process of its own. "Cold" has an empty cache of compiled programs, "warm" the one that the run before
has filled; the fastest of a few runs counts, and the work itself (10,000 steps) takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine_line

HELP = ["--help"]
TRAIN = ["train", "point-mass-1t", "--steps", "10k"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    from procurl.bench.report.tables import text_table

    with tempfile.TemporaryDirectory() as folder:
        cold = [seconds(TRAIN, Path(folder) / str(turn)) for turn in range(args.turns)]
        warm = [seconds(TRAIN, Path(folder) / "0") for _ in range(args.turns)]
        helped = [seconds(HELP, Path(folder) / "0") for _ in range(args.turns)]
    rows = [
        ["procurl --help", f"{min(helped):.2f} s"],
        [f"procurl {' '.join(TRAIN)}, cold", f"{min(cold):.1f} s"],
        ["the same, warm", f"{min(warm):.1f} s"],
    ]
    print(text_table(["command", "seconds"], rows))
    print(f"\n{machine_line()}")


def seconds(arguments: list[str], cache: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "procurl.cli", *arguments],
        check=True, capture_output=True, env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)},
    )  # fmt: skip
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
