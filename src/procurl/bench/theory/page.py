"""docs/theory.md: the text of page.md with every number computed. `{{name}}` in the text is a fact of that name."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np

from procurl.bench.report.tables import text_table
from procurl.bench.theory import autodiff, comparison, library, rates
from procurl.bench.theory.bandit import Floats
from procurl.bench.theory.comparison import HIGH, LOW, MOMENTS, SEEDS, SMALL, STEPS, Comparison, bandit_and_luck, number
from procurl.bench.theory.learner import expected_improvement, sampled_step
from procurl.bench.theory.simulation import START, simulate, steps_to
from procurl.bench.theory.teachers import TEACHERS, Alignment, Softmax, TargetOnly, Teacher, product
from procurl.errors import ProcurlError

Facts = dict[str, str]
FEW = 5  # seeds of the smaller tables
STATES = (0, 5, 10, 20, 30, 50, 100)  # steps of a curriculum at which choices are compared


class PageError(ProcurlError, ValueError):
    """A page whose text and facts do not fit, or a claim on it that turned out false."""


def write(path: Path) -> list[Path]:
    """The page, and its figures in the folder images beside it."""
    from procurl.bench.theory import figure

    compared = comparison.compare(SEEDS, STEPS)
    text = filled(template(), facts(compared))
    images = path.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [path, *figure.save_both(compared, images)]


def template() -> str:
    return files("procurl.bench.theory").joinpath("page.md").read_text()


def filled(text: str, facts: Facts) -> str:
    """The text with its facts; one that is missing, or that nobody asks for, is a mistake."""
    asked = set(re.findall(r"\{\{(\w+)\}\}", text))
    if asked != set(facts):
        raise PageError(
            f"page.md and its facts differ in {', '.join(sorted(asked ^ set(facts)))}: expected the same names"
        )
    return re.sub(r"\{\{(\w+)\}\}", lambda match: facts[match[1]], text)


def facts(compared: Comparison) -> Facts:
    """Everything that the page says in numbers."""
    return {
        **_setting(compared), **_improvement(compared), **_proposition(), **_library(compared), **_softmax(),
        **_comparison(compared), **_theorem(compared),
    }  # fmt: skip


def _setting(compared: Comparison) -> Facts:
    tasks, features = compared.bandit.psi.shape
    first = compared.runs["target only"][0].value[0]
    return {
        "seeds": str(SEEDS), "steps": str(STEPS), "few_seeds": str(FEW), "tasks": str(tasks), "features": str(features),
        "start": f"{START:g}", "first_value": number(first), "small": number(SMALL, 1),
        "low_quantile": f"{100 * LOW:.0f}", "high_quantile": f"{100 * HIGH:.0f}", "middle": f"{100 * (HIGH - LOW):.0f}",
    }  # fmt: skip


def _states(compared: Comparison) -> Floats:
    return compared.runs["gradient alignment"][0].theta[list(STATES)]


def _improvement(compared: Comparison) -> Facts:
    """How much of the greatest expected improvement the aligned task has."""
    small = 1e-2

    def share(eta: float) -> float:
        shares = []
        for theta in _states(compared):
            improvement = expected_improvement(compared.bandit, theta, eta)
            shares.append(improvement[np.argmax(product(compared.bandit, theta))] / improvement.max())
        return min(shares)

    return {
        "states": str(len(STATES)), "eta_small": f"{small:g}",
        "share_small": _percent(share(small)), "share_one": _percent(share(1.0)),
    }  # fmt: skip


def _proposition() -> Facts:
    """Closed form and automatic differentiation, and the stray factor."""
    low, high, eta = 0.1, 1.0, 0.5
    bandit, luck = bandit_and_luck(0, rewards=(low, high))
    theta = luck.normal(size=(bandit.psi.shape[1],))
    found, stated = autodiff.alignments(bandit, theta), product(bandit, theta)
    task = int(np.argmax(stated))
    return {
        "autodiff_error": _at_most(np.abs(found - stated).max() / stated.max()), "autodiff_tasks": str(len(found)),
        "low_reward": f"{low:g}", "high_reward": f"{high:g}", "example_eta": f"{eta:g}",
        "example_autodiff": number(found[task], 4), "example_product": number(stated[task], 4),
        "example_stray": number(eta * stated[task], 4),
    }  # fmt: skip


def _library(compared: Comparison) -> Facts:
    """ProCuRLTarget against the product rule, with rewards of 1 and with others."""
    sharp, soft, low = 1e9, Softmax().beta, 0.5
    teachers = [library.procurl_target(compared.bandit, beta) for beta in (sharp, soft)]
    shares, errors = [], []
    for theta in _states(compared):
        student = library.Student(compared.bandit, theta)
        pick, probabilities = (library.probabilities(teacher, student) for teacher in teachers)
        shares.append(_share(product(compared.bandit, theta), int(np.argmax(pick))))
        errors.append(np.abs(probabilities / Softmax(soft).probabilities(compared.bandit, theta) - 1).max())

    mixed, luck = bandit_and_luck(0, rewards=(low, 1.0))
    teacher = library.procurl_target(mixed, sharp)
    path = simulate(mixed, Alignment(), max(STATES), luck).theta[list(STATES)]
    costs = []
    for theta in path:
        pick = library.probabilities(teacher, library.Student(mixed, theta))
        costs.append(_share(product(mixed, theta), int(np.argmax(pick))))
    return {
        "library_share": _percent(min(shares)), "library_states": str(len(STATES)), "beta": f"{soft:g}",
        "library_error": _at_most(max(errors)), "low_reward_mixed": f"{low:g}",
        "mixed_mean": _percent(float(np.mean(costs))), "mixed_worst": _percent(min(costs)),
    }  # fmt: skip


def _softmax() -> Facts:
    """Gaps under ProCuRL-Target for several temperatures."""
    moments = [t for t in MOMENTS if t >= 100]
    rows = []
    for beta in (Softmax().beta, 1e3, 1e4, 1e5):
        runs = comparison.repeated(Softmax(beta), range(FEW), STEPS)
        gaps = np.median([run.gap[moments] for run in runs], axis=0)
        rows.append([f"{beta:,.0f}", *(number(gap) for gap in gaps)])
    return {"beta_table": text_table(["beta", *(f"after {t} steps" for t in moments)], rows)}


def _comparison(compared: Comparison) -> Facts:
    header, rows = comparison.gap_rows(compared)
    sampled = []
    for name, teacher in TEACHERS.items():
        runs = comparison.repeated(teacher, range(SEEDS), STEPS, learner=sampled_step)
        low, middle, high = np.quantile([steps_to(r.gap, SMALL) for r in runs], (LOW, 0.5, HIGH), method="nearest")
        sampled.append([name, _steps(middle, STEPS), f"{_steps(low, STEPS)} to {_steps(high, STEPS)}"])
    return {
        "gap_table": text_table(header, rows),
        "sampled_table": text_table(["single episodes", "median", "range"], sampled),
        "start_table": _starts(),
    }


def _starts() -> str:
    """Targets that are harder and harder at first."""
    teachers: dict[str, tuple[Teacher, int]] = {
        "gradient alignment": (Alignment(), 500), "target only": (TargetOnly(), 2 * STEPS),
    }  # fmt: skip
    rows = []
    for start in (START, 2 * START, 3 * START, 4 * START):
        cells = []
        for teacher, longest in teachers.values():
            runs = comparison.repeated(teacher, range(FEW), longest, start=start)
            cells.append(_steps(float(np.median([steps_to(run.gap, SMALL) for run in runs])), longest))
        rows.append([number(runs[0].value[0]), *cells])
    return text_table(["value of the target at first", *teachers], rows)


def _theorem(compared: Comparison) -> Facts:
    aligned, alone = (compared.runs[name][0] for name in ("gradient alignment", "target only"))
    mean, from_step = rates.growth_of_mean(), 300
    root, plain = (_fit(aligned.gap, scale) for scale in (np.sqrt, np.asarray))
    t = np.arange(from_step, STEPS + 1)
    power = rates.fitted_line(np.log(t), np.log(alone.gap[from_step:]))
    linear = _fit(compared.scaled["target only"].gap, np.asarray)
    scaled_root, scaled_plain = (_fit(compared.scaled["gradient alignment"].gap, s) for s in (np.sqrt, np.asarray))
    bound = rates.least_gap(compared.bandit, 1.0, aligned.norm[0], STEPS)
    if not all((run.gap >= bound).all() for runs in compared.runs.values() for run in runs):
        raise PageError("the page says that no teacher gets below its bound, but one did")
    return {
        "recursions": str(_recursions()), "peak": number(mean.height, 4), "peak_at": number(mean.at, 5),
        "sample_peak": number(rates.growth_of_sample().height, 4),
        "growth": number(rates.norm_growth(compared.bandit, 1.0), 3),
        "root_slope": number(-root.slope, 3), "root_fit": _fit_text(root), "plain_fit": _fit_text(plain),
        "ideal_slope": number(np.sqrt(2 * mean.height), 3),
        "bound_slope": number(np.sqrt(rates.norm_growth(compared.bandit, 1.0)), 3),
        "power": number(power.slope, 3), "power_from": str(from_step),
        "linear_slope": number(linear.slope, 4), "linear_fit": _fit_text(linear),
        "linear_beta": number(-np.expm1(-1.0), 3),
        "scaled_root_fit": _fit_text(scaled_root), "scaled_plain_fit": _fit_text(scaled_plain),
        "beta_t_table": _rates_table(compared), "epsilon_table": _epsilon_table(aligned.gap),
    }  # fmt: skip


def _fit(gap: Floats, scale: Callable[[Floats], Floats]) -> rates.Line:
    """log f as a line in the (scaled) number of steps, for gaps between 1e-15 and 1e-2."""
    some = np.flatnonzero((gap <= 1e-2) & (gap >= 1e-15))
    return rates.fitted_line(scale(some.astype(float)), np.log(gap[some]))


def _recursions(n: int = 1000) -> int:
    """How many random cases of the recursion were tried; each must have kept the theorem's promise."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        beta, epsilon, first = rng.uniform(0.01, 0.99), 10 ** rng.uniform(-9, -1), rng.uniform(0.1, 1)
        steps = rates.stated_steps(first, epsilon, beta)
        if rates.recursion(first, beta, epsilon * beta / 2, steps)[-1] > epsilon * (1 + 1e-12):
            raise PageError(f"the recursion is above epsilon = {epsilon} for beta = {beta}, f_0 = {first}")
    return n


def _rates_table(compared: Comparison) -> str:
    moments = [t for t in MOMENTS if 10 <= t < STEPS] + [STEPS - 1]
    rows = []
    for name in ("gradient alignment", "target only"):
        beta = rates.improvement_rates(compared.runs[name][0].gap)
        rows.append([name, *(number(beta[t]) for t in moments)])
    return text_table(["beta_t at step", *map(str, moments)], rows)


def _epsilon_table(gap: Floats) -> str:
    """Steps to smaller and smaller gaps, and the theorem's count for the smallest beta on the way."""
    rows = []
    beta = rates.improvement_rates(gap)
    for epsilon in 10.0 ** -np.arange(2, 16, 2):
        steps = int(steps_to(gap, epsilon))
        least = float(beta[:steps].min())
        stated = rates.stated_steps(gap[0], epsilon, least)
        if stated < steps:
            raise PageError(f"the page calls {stated} an upper bound, but {steps} steps were needed for {epsilon}")
        log = np.log(1 / epsilon)
        rows.append(
            [number(epsilon, 1), str(steps), number(steps / log), number(steps / log**2), number(least), str(stated)]
        )
    header = [
        "epsilon",
        "steps",
        "steps / log(1/epsilon)",
        "steps / log²(1/epsilon)",
        "smallest beta_t",
        "stated steps",
    ]
    return text_table(header, rows)


def _share(scores: Floats, pick: int) -> float:
    return float(scores[pick] / scores.max())


def _percent(share: float) -> str:
    """Rounded down: 'at least' must stay true."""
    return f"{np.floor(1e4 * share) / 100:g} %" if share < 0.9999 else "99.99 %"


def _at_most(error: float) -> str:
    """A power of ten above the error, of few: what is left over from rounding differs between machines."""
    for limit in (1e-12, 1e-5, 1e-3):
        if error < limit:
            return number(limit, 1)
    raise PageError(f"an error of {error}: expected less than 1e-3, the page speaks of agreement")


def _steps(steps: float, longest: int) -> str:
    return f"{steps:.0f}" if np.isfinite(steps) else f"over {longest}"


def _fit_text(line: rates.Line) -> str:
    """R², rounded down."""
    return f"{np.floor(1e4 * line.r_squared) / 1e4:.4f}"
