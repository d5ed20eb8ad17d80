"""The paper's analysis, executed: each claim against autodiff, brute force or simulation, and the page made of them."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from procurl.bench.theory import comparison, figure, library, page, rates
from procurl.bench.theory.autodiff import alignments, value_gradients
from procurl.bench.theory.bandit import Bandit, random_bandit
from procurl.bench.theory.learner import (
    Constant,
    OverPotential,
    expected_improvement,
    expected_step,
    improvement_of_mean,
    sampled_step,
    score,
)
from procurl.bench.theory.simulation import simulate, steps_to
from procurl.bench.theory.teachers import TEACHERS, Alignment, ProductRule, Softmax, TargetOnly, Uniform, product
from procurl.errors import ConfigError
from procurl.programs import jit

ROOT = Path(__file__).parent.parent


def some_bandits(rewards=(0.05, 1.0)):
    """Of several sizes, each with a student; features, rewards and right actions at random."""
    for seed, (n, d) in enumerate([(3, 1), (7, 2), (40, 5), (25, 13)]):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(n, 2, d))
        target = int(rng.integers(n))
        bandit = Bandit(features, rng.integers(2, size=n), rng.uniform(*rewards, n), target)
        yield bandit, rng.normal(size=d)


@pytest.fixture(scope="module")
def bandit():
    return random_bandit(np.random.default_rng(0))


@pytest.fixture(scope="module")
def runs(bandit):
    return {name: simulate(bandit, t, 3000, np.random.default_rng(1)) for name, t in TEACHERS.items()}


# --- The twelve checks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1.0, 0.5, 3.0])
def test_1_alignment_is_the_product_without_eta(eta):
    for bandit, theta in some_bandits():
        found, stated = alignments(bandit, theta), eta * product(bandit, theta)
        if eta == 1.0:
            np.testing.assert_allclose(found, stated, rtol=1e-6)
        else:
            assert not np.isclose(found, stated, rtol=1e-6).any(), "with the paper's factor it holds for eta = 1 only"


def test_2_gradient_is_the_expected_score():
    for bandit, theta in some_bandits():
        for c in range(len(bandit.psi)):
            pi = bandit.policy(theta, c)
            earned = np.where(np.arange(2) == bandit.optimal[c], bandit.reward[c], 0.0)
            estimate = sum(pi[a] * earned[a] * score(bandit, theta, c, a) for a in range(2))
            np.testing.assert_allclose(bandit.gradient(theta, c), estimate, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(bandit.gradient(theta), value_gradients(bandit, theta), rtol=1e-10, atol=1e-15)


def test_3_potential_is_highest_half_way():
    x = np.linspace(-30, 30, 2001)
    for r in (1.0, 0.3):
        bandit = Bandit(np.stack([x, 0 * x], axis=1)[..., None], np.zeros(2001, int), np.full(2001, r), 0)
        theta = np.ones(1)
        z, v, best = bandit.potential(theta), bandit.value(theta), bandit.optimal_value()
        np.testing.assert_allclose(z, v / best * (best - v), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(z, z[::-1], rtol=1e-12)
        assert (z >= 0).all() and z.max() == pytest.approx(r / 4)
        assert v[np.argmax(z)] == pytest.approx(r / 2)


def test_4_improvement_tends_to_alignment():
    for bandit, theta in some_bandits():
        aligned = product(bandit, theta)
        for improvement in (improvement_of_mean, expected_improvement):
            errors = [np.abs(improvement(bandit, theta, eta) / eta - aligned).max() for eta in (1e-2, 1e-3, 1e-4)]
            np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=0.1, err_msg="not O(eta)")


def test_4_improvements_are_what_steps_do():
    """The closed forms of both improvements against values after real steps."""
    eta = 0.7
    for bandit, theta in some_bandits():
        now = bandit.value(theta, bandit.target)
        of_mean, expected = improvement_of_mean(bandit, theta, eta), expected_improvement(bandit, theta, eta)
        for c in range(len(bandit.psi)):
            after = expected_step(bandit, theta, c, eta, np.random.default_rng(0))
            assert bandit.value(after, bandit.target) - now == pytest.approx(of_mean[c], abs=1e-14)
            right = int(bandit.optimal[c])
            after = theta + eta * bandit.reward[c] * score(bandit, theta, c, right)
            rise = bandit.policy(theta, c)[right] * (bandit.value(after, bandit.target) - now)
            assert rise == pytest.approx(expected[c], abs=1e-14)


def test_5_the_product_rule_s_pick_improves_most():
    rng = np.random.default_rng(0)
    for bandit, theta in some_bandits():
        pick = ProductRule().pick(bandit, theta, rng)
        improvement = expected_improvement(bandit, theta, 1e-4)
        assert improvement[pick] >= (1 - 1e-3) * improvement.max() > 0
        for eta in (0.1, 1.0, 10.0):  # for the expected step it is exact, however long the step
            improvement = improvement_of_mean(bandit, theta, eta)
            assert improvement[pick] == improvement.max()


def test_6_recursion_of_the_theorem():
    rng = np.random.default_rng(0)
    for _ in range(200):
        beta, epsilon, first = rng.uniform(0.01, 0.99), 10 ** rng.uniform(-9, -1), rng.uniform(0.1, 1)
        delta, steps = epsilon * beta / 2, rates.stated_steps(first, epsilon, beta)
        gaps = rates.recursion(first, beta, delta, 2 * steps)
        t = np.arange(2 * steps + 1)
        assert (gaps <= ((1 - beta) ** t * first + delta / beta) * (1 + 1e-12)).all()
        assert (gaps[steps:] <= epsilon * (1 + 1e-12)).all()
        assert gaps[steps] > epsilon / 4, "the number of steps is not far too large"


def test_7_the_gap_is_the_product_of_its_rates(runs):
    run = runs["gradient alignment"]
    beta = np.diff(run.value[:301]) / (1 - run.value[:300])  # as defined, from values: loses digits later on
    np.testing.assert_allclose(run.gap[300], run.gap[0] * np.prod(1 - beta), rtol=1e-9)
    np.testing.assert_allclose(rates.improvement_rates(run.gap)[:300], beta, rtol=1e-6)
    every = rates.improvement_rates(run.gap)
    assert (every > 0).all() and (every < 1).all()
    np.testing.assert_allclose(run.gap[-1], run.gap[0] * np.prod(1 - every), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_8_alignment_is_first_and_uniform_last(seed):
    bandit = random_bandit(np.random.default_rng(seed))
    steps = {
        name: steps_to(simulate(bandit, TEACHERS[name], 1500, np.random.default_rng(seed)).gap, 1e-3)
        for name in ("gradient alignment", "target only", "uniform")
    }
    assert steps["gradient alignment"] < steps["target only"] < steps["uniform"]
    assert 100 <= steps["gradient alignment"] <= 140 and 950 <= steps["target only"] <= 1100


def test_9_linear_with_a_step_size_that_makes_up_for_the_gradient(bandit):
    for eta in (1.0, 0.2):
        run = simulate(bandit, TargetOnly(), 200, np.random.default_rng(0), step_size=OverPotential(eta))
        some = (run.gap >= 1e-10) & (run.gap <= 1e-2)
        line = rates.fitted_line(np.flatnonzero(some), np.log(run.gap[some]))
        assert line.r_squared > 0.999 and line.slope == pytest.approx(-eta, rel=1e-3)


def test_9_not_linear_with_a_constant_step_size(runs):
    t = np.arange(3001)
    gap = runs["gradient alignment"].gap
    some = (gap <= 1e-2) & (gap >= 1e-15)
    root, plain = (rates.fitted_line(x[some], np.log(gap[some])) for x in (np.sqrt(t), t))
    assert root.r_squared > 0.999 > 0.98 > plain.r_squared
    assert root.slope == pytest.approx(-np.sqrt(2 * rates.growth_of_mean().height), rel=0.05)
    gap = runs["target only"].gap[300:]
    assert rates.fitted_line(np.log(t[300:]), np.log(gap)).slope == pytest.approx(-1, abs=0.1)


def test_9_the_step_size_does_not_make_alignment_linear(bandit):
    """Tasks of medium difficulty have ever less in common with a target that is nearly solved."""
    run = simulate(bandit, Alignment(), 300, np.random.default_rng(0), step_size=OverPotential())
    t = np.arange(301)
    some = (run.gap <= 1e-2) & (run.gap >= 1e-13)
    root, plain = (rates.fitted_line(x[some], np.log(run.gap[some])) for x in (np.sqrt(t), t))
    assert root.r_squared > 0.999 > 0.98 > plain.r_squared


@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_10_the_norm_and_the_gap_are_bounded_for_every_teacher(bandit, eta):
    assert rates.growth_of_mean() == pytest.approx((1.5434, 0.2239), abs=1e-4)
    tightest = np.inf
    for teacher in TEACHERS.values():
        for start in (-2.0, 0.0):
            run = simulate(bandit, teacher, 500, np.random.default_rng(1), start=start, step_size=Constant(eta))
            bound = rates.norm_bound(bandit, eta, run.norm[0], 500)
            assert (run.norm <= bound * (1 + 1e-12)).all()
            assert (run.gap >= rates.least_gap(bandit, eta, run.norm[0], 500)).all()
            tightest = min(tightest, bound[-1] / run.norm[-1])
    assert tightest < 1.3, "the bound is near what a teacher attains"


def test_10_a_sampled_learner_is_bounded_too(bandit):
    for teacher in (Alignment(), TargetOnly(), Uniform()):
        run = simulate(bandit, teacher, 500, np.random.default_rng(1), learner=sampled_step)
        assert (run.norm <= rates.norm_bound(bandit, 1.0, run.norm[0], 500, sampled=True)).all()
        assert (run.gap >= rates.least_gap(bandit, 1.0, run.norm[0], 500, sampled=True)).all()


def test_10_peaks_of_growth():
    for found, curve in (
        (rates.growth_of_mean(), lambda y: y * expit(y) * expit(-y)),
        (rates.growth_of_sample(), lambda y: y * expit(-y)),
    ):
        best = optimize.minimize_scalar(lambda y, curve=curve: -curve(y), bounds=(0, 10), method="bounded")
        assert found == pytest.approx((best.x, -best.fun), abs=1e-5)


def test_11_procurl_target_picks_what_the_product_rule_picks(bandit, runs):
    sharp, soft = (library.procurl_target(bandit, beta) for beta in (1e9, 130.0))
    propose = jit(lambda teacher, state, key: teacher.propose(state, key, 50))
    for theta in runs["gradient alignment"].theta[[0, 30, 60, 90]]:
        score = product(bandit, theta)
        student = library.Student(bandit, theta)
        best = np.argmax(library.probabilities(sharp, student))
        assert score[best] >= (1 - 1e-4) * score.max()
        drawn = np.asarray(propose(sharp, library.watched(sharp, student), jax.random.key(0)).row)
        assert (score[drawn] >= (1 - 1e-4) * score.max()).all()
        np.testing.assert_allclose(
            library.probabilities(soft, student), Softmax(130.0).probabilities(bandit, theta), rtol=1e-3
        )


def test_12_mean_of_sampled_steps_is_the_gradient():
    rng = np.random.default_rng(0)
    bandit, theta = list(some_bandits())[1]
    eta, n = 0.5, 100_000
    steps = np.array([sampled_step(bandit, theta, 2, eta, rng) for _ in range(n)]) - theta
    error = steps.std(axis=0) / np.sqrt(n)
    assert (error > 0).all()
    assert (np.abs(steps.mean(axis=0) - eta * bandit.gradient(theta, 2)) < 4 * error).all()


# --- Precision, the natural gradient, errors --------------------------------------------------------------------------


def test_double_precision_stays_local():
    bandit, theta = next(some_bandits())
    assert value_gradients(bandit, theta).dtype == np.float64
    assert jax.numpy.zeros(1).dtype == np.float32 and not jax.config.jax_enable_x64


def test_the_gap_falls_below_what_a_difference_can_show(bandit):
    theta = 100 * bandit.psi[bandit.target]
    assert bandit.gap(theta, bandit.target) == pytest.approx(np.exp(-100.0), rel=1e-9, abs=0)
    assert bandit.potential(theta, bandit.target) == pytest.approx(np.exp(-100.0), rel=1e-9, abs=0)
    assert bandit.optimal_value(bandit.target) - bandit.value(theta, bandit.target) == 0.0
    assert improvement_of_mean(bandit, theta, 1.0).max() > 0 and expected_improvement(bandit, theta, 1.0).max() > 0


def test_the_natural_gradient_on_one_task_does_not_vanish():
    for bandit, theta in some_bandits():
        t = bandit.target
        scores = np.stack([score(bandit, theta, t, a) for a in range(2)])
        fisher = np.einsum("a,ai,aj->ij", bandit.policy(theta, t), scores, scores)
        expected = bandit.reward[t] * bandit.psi[t] / (bandit.psi[t] @ bandit.psi[t])
        np.testing.assert_allclose(np.linalg.pinv(fisher, rcond=1e-9) @ bandit.gradient(theta, t), expected, rtol=1e-6)


def test_uniform_and_softmax_draw_what_they_say():
    bandit, theta = list(some_bandits())[1]
    rng = np.random.default_rng(0)
    n = len(bandit.psi)
    for teacher, expected in (
        (Uniform(), np.full(n, 1 / n)),
        (Softmax(300.0), Softmax(300.0).probabilities(bandit, theta)),
    ):
        counts = np.bincount([teacher.pick(bandit, theta, rng) for _ in range(20_000)], minlength=n)
        error = np.sqrt(expected * (1 - expected) / 20_000)
        assert (np.abs(counts / 20_000 - expected) <= 4 * error + 1e-9).all()
    assert Softmax(300.0).probabilities(bandit, theta).max() > 2 / n, "or the test could not tell the two apart"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros((4, 3, 2))}, "2 actions"),
        ({"reward": np.ones(3)}, "expected one each"),
        ({"features": np.full((4, 2, 2), np.nan)}, "NaN"),
        ({"optimal": np.full(4, 2)}, "0 and 1"),
        ({"reward": np.zeros(4)}, "can be earned"),
        ({"target": 4}, "between 0 and 3"),
    ],
)
def test_a_bandit_that_makes_no_sense_is_an_error(change, message):
    fields = {"features": np.zeros((4, 2, 2)), "optimal": np.zeros(4, int), "reward": np.ones(4), "target": 0}
    with pytest.raises(ConfigError, match=message):
        Bandit(**{**fields, **change})


def test_numbers_that_make_no_sense_are_errors(bandit):
    with pytest.raises(ConfigError, match="0 steps"):
        simulate(bandit, TargetOnly(), 0, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="0 seeds"):
        comparison.compare(seeds=0)
    with pytest.raises(ConfigError, match="0 < beta < 1"):
        rates.stated_steps(1.0, 0.1, 1.0)
    with pytest.raises(ConfigError, match="at least one of each"):
        random_bandit(np.random.default_rng(0), n_tasks=0)


# --- The page, its figures and the command ---------------------------------------------------------------------------


def test_numbers_are_written_short():
    given = [0.8807970, 0.0123, 1.76e-3, 5.6e-10, 1022.4, 1e-16, 0.0, -1.0234, 0.2239]
    written = [comparison.number(x) for x in given]
    assert written == ["0.88", "0.012", "1.8e-3", "5.6e-10", "1022", "1.0e-16", "0", "-1.0", "0.22"]


@pytest.mark.slow
def test_the_page_and_its_figures_are_what_the_code_makes(tmp_path):
    (tmp_path / "docs").mkdir()
    made = page.write(tmp_path / "docs/theory.md")
    assert made[0].read_text() == (ROOT / "docs/theory.md").read_text()
    assert len(made) == 3
    for picture in made[1:]:
        fresh, kept = (figure.carried(p) for p in (picture, ROOT / "docs/images" / picture.name))
        assert len(fresh) == len(kept) > 3 and sum(map(len, fresh)) > 500
        for a, b in zip(fresh, kept, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, err_msg=picture.name)


def test_the_text_of_the_page_has_no_number_of_its_own():
    text = re.sub(r"```.*?```|`[^`]*`", "", page.template(), flags=re.DOTALL)
    assert not re.search(r"\d\.\d|\de-\d", text)
    for known in (r"\$\$.*?\$\$", r"\$[^$]*\$", r"\{\{\w+\}\}", "(Proposition|Theorem) 1", "float32"):
        text = re.sub(known, "", text, flags=re.DOTALL)
    assert not re.search(r"\d", text)


def test_a_fact_too_many_or_too_few_is_an_error():
    assert page.filled("{{a}} and {{b}}", {"a": "1", "b": "2"}) == "1 and 2"
    for facts in ({"a": "1"}, {"a": "1", "b": "2", "c": "3"}):
        with pytest.raises(page.PageError, match="expected the same names"):
            page.filled("{{a}} and {{b}}", facts)


def test_a_picture_carries_what_it_shows(tmp_path):
    compared = comparison.compare(seeds=3, steps=40)
    path = figure.save(figure.overview(compared), tmp_path / "a.png")
    numbers = figure.carried(path)
    curves = [np.reshape(x, (-1, 2)) for x in numbers]
    t = figure.moments(40)
    for name in TEACHERS:
        expected = np.stack([t, np.median(compared.gaps(name), axis=0)[t]], axis=1)
        assert any(c.shape == expected.shape and np.allclose(c, expected, rtol=1e-3) for c in curves), name
    run = compared.runs["gradient alignment"][0]
    assert any(np.allclose(c[0], (run.difficulty[0], run.correlation[0]), rtol=1e-3) for c in curves)


def test_the_command_prints_a_table_and_writes_two_figures(command, tmp_path):
    done = command("theory", "--seeds", "2", "--steps", "120", "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in done.stdout.splitlines() if "|" in line}
    assert set(TEACHERS) < set(rows) and rows["uniform"][-1].strip() == "over 120"
    assert float(rows["gradient alignment"][3]) < float(rows["target only"][3]) < float(rows["uniform"][3])
    picks = re.search(r"large beta: (\d+); of the product rule: (\d+)\.", done.stdout)
    assert picks[1] == picks[2]
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"theory.png", "theory-rates.png"}
    done = command("theory", "--page", "x.md", "--seeds", "2")
    assert done.returncode == 1 and "--page: expected without" in done.stderr


def test_the_page_s_python_runs_as_printed(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/theory.md").read_text(), re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[") == 2
