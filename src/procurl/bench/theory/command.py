"""`procurl theory`: the comparison of teachers as a table and two figures, or the page about it."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from procurl.bench.theory import autodiff, comparison, figure, library, page
from procurl.bench.theory.comparison import SEEDS, STEPS, Comparison
from procurl.bench.theory.teachers import product
from procurl.check.numbers import whole
from procurl.errors import ConfigError
from procurl.runs.store import disk


def run(args: argparse.Namespace) -> None:
    if args.page is not None:
        if args.seeds is not None or args.steps is not None or args.out is not None:
            raise ConfigError("--page: expected without --seeds, --steps and --out; the page has its own")
        if args.page.is_dir():
            raise ConfigError(f"--page {args.page}: this is a folder; expected the name of a file, e.g. theory.md")
        written = page.write(args.page)
    else:
        seeds = SEEDS if args.seeds is None else whole("--seeds", args.seeds, 1)
        out = disk.made_folder(args.out or Path("."))  # before the work, in case it cannot be made
        compared = comparison.compare(seeds, STEPS if args.steps is None else args.steps)
        print(comparison.table(compared))
        print(checks(compared))
        written = figure.save_both(compared, out)
    for path in written:
        print(path)


def checks(compared: Comparison) -> str:
    """Proposition 1 by automatic differentiation, and the library's teacher against the rule, for the first student."""
    bandit, theta = compared.bandit, compared.runs["gradient alignment"][0].theta[0]
    score = product(bandit, theta)
    error = np.abs(autodiff.alignments(bandit, theta) - score).max() / score.max()
    teacher = library.procurl_target(bandit, beta=1e9)
    pick = int(np.argmax(library.probabilities(teacher, library.Student(bandit, theta))))
    return (
        "Median over seeds; expected REINFORCE steps, eta = 1.\n"
        f"Proposition 1 against automatic differentiation: largest error {error:.0e} of the largest alignment.\n"
        f"First pick of the library's ProCuRL-Target with large beta: {pick}; of the product rule: {np.argmax(score)}."
    )
