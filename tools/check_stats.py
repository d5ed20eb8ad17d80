"""Compare `procurl.bench.stats` with rliable, number by number: prints both, and fails if they differ.

rliable is no dependency of procurl: give it an environment of its own (it does not work with pandas 3).

    python -m venv rliable-env
    rliable-env/bin/pip install rliable "pandas<3"
    PYTHONPATH=src rliable-env/bin/python tools/check_stats.py
"""

from __future__ import annotations

import importlib.metadata
import sys

import numpy as np

from procurl.bench import stats

SEEDS, SETTINGS = 25, 3
REPEATS = 50_000  # enough that two bootstraps with different random numbers agree to two digits


def main() -> int:
    try:
        from rliable import library, metrics
    except (ImportError, TypeError) as error:  # with pandas 3, importing it ends in a TypeError
        print(f"rliable cannot be imported ({error}): pip install rliable 'pandas<3'", file=sys.stderr)
        return 2
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("rliable", "scipy", "arch", "numpy")))

    rng = np.random.default_rng(0)
    np.random.seed(0)  # noqa: NPY002  # rliable draws from NumPy's global generator, whatever random_state says
    # Like Point Mass: many seeds at 0 or near 1, so there are ties, within a strategy and between two.
    a, b = (np.round(np.clip(rng.normal(m, 0.5, (SEEDS, SETTINGS)), 0, 1), 2) for m in (0.6, 0.4))
    thresholds = np.linspace(0, 0.9, 10)
    columns = list(a.T)

    def theirs(scores, function):
        _, interval = library.get_interval_estimates({"x": scores}, function, reps=REPEATS)
        return interval["x"][:, 0]

    profile, profile_interval = library.create_performance_profile({"x": a[:, :1]}, thresholds, reps=REPEATS)
    rows = [  # what, ours, theirs, the greatest difference allowed
        ("mean", stats.mean_of_settings(columns), metrics.aggregate_mean(a), 1e-12),
        ("IQM", stats.iqm_of_settings(columns), metrics.aggregate_iqm(a), 1e-12),
        *(
            (f"IQM of {n} seeds", stats.iqm(a[:n, 0]), metrics.aggregate_iqm(a[:n, :1]), 1e-12)
            for n in (1, 2, 3, 4, 5, 6, 7, 8, 9)
        ),
        ("profile", stats.performance_profile(a[:, 0], thresholds), profile["x"], 1e-12),
        (
            "P(improvement)",
            np.mean([stats.probability_of_improvement(a[:, k], b[:, k]) for k in range(SETTINGS)]),
            metrics.probability_of_improvement(a, b),
            1e-12,
        ),
        (
            "interval of the mean",
            stats.stratified_interval(columns, "mean", repeats=REPEATS),
            theirs(a, lambda x: np.array([metrics.aggregate_mean(x)])),
            0.003,
        ),
        (
            "interval of the IQM",
            stats.stratified_interval(columns, "iqm", repeats=REPEATS),
            theirs(a, lambda x: np.array([metrics.aggregate_iqm(x)])),
            0.006,
        ),
        (
            "interval of the profile",
            stats.profile_interval(a[:, 0], thresholds, repeats=REPEATS),
            profile_interval["x"],
            1 / SEEDS + 1e-12,  # shares are whole numbers of seeds: a quantile may fall on the next one
        ),
        (
            "interval of P(improvement)",
            stats.probability_interval(a[:, 0], b[:, 0], repeats=REPEATS),
            theirs([a[:, :1], b[:, :1]], lambda x, y: np.array([metrics.probability_of_improvement(x, y)])),
            0.005,
        ),
    ]
    worst = 0
    for what, ours, other, allowed in rows:
        gap = float(np.max(np.abs(np.asarray(ours) - np.asarray(other))))
        verdict = "ok" if gap <= allowed else f"DIFFERS by more than {allowed:g}"
        worst = max(worst, gap > allowed)
        print(f"{what:28} ours {shown(ours)}  rliable {shown(other)}  difference {gap:.1e}  {verdict}")
    return int(worst)


def shown(x: object) -> str:
    return np.array2string(np.asarray(x, float), precision=4, suppress_small=True, max_line_width=10_000).replace(
        "\n", ""
    )


if __name__ == "__main__":
    sys.exit(main())
