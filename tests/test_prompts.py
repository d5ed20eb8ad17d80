"""Curricula over prompts: batches against the slow formula, calibration on simulated students, exact resumption."""

import importlib.util
import logging
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from procurl.errors import CheckpointError, ConfigError, IdleError, NewerFormatError
from procurl.prompts import PromptCurriculum, sampling
from procurl.prompts.pass_rates import log_gamma
from procurl.prompts.regression import inverse

ROOT = Path(__file__).parent.parent
STRATEGIES = ("procurl-target", "procurl-unif", "uniform")


def students():
    """benchmarks/prompt_students.py"""
    spec = importlib.util.spec_from_file_location("prompt_students", ROOT / "benchmarks" / "prompt_students.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["prompt_students"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def some_embeddings(n=40, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def made(strategy="procurl-target", n=40, played=6, **options):
    """A curriculum that has seen a few batches of a student to whom the first dimension matters."""
    x = some_embeddings(n)
    curriculum = PromptCurriculum(n, x, targets=some_embeddings(5, seed=1), strategy=strategy, **options)
    play(curriculum, x, played)
    return curriculum, x


def play(curriculum, x, batches, start=0, n=8):
    for t in range(start, start + batches):
        ids = curriculum.batch(n)
        curriculum.record(ids, np.random.default_rng([7, t]).binomial(8, 1 / (1 + np.exp(-2 * x[ids, 0]))))


# ---------------------------------------------------------------- the formula


def slow_probabilities(strategy, p, p_targets, x, targets, b=5.0, hope=0.05, pairing="max"):
    """Prompt by prompt, pair by pair."""
    if strategy == "uniform":
        return np.full(len(p), 1 / len(p))
    pairs = np.zeros((len(p), len(targets)))
    for i in range(len(p)):
        for j in range(len(targets)):
            cosine = x[i] @ targets[j] / math.sqrt(x[i] @ x[i]) / math.sqrt(targets[j] @ targets[j])
            pull = max(p_targets[j] * (1 - p_targets[j]), hope * (1 - p_targets[j]))
            pairs[i, j] = p[i] * (1 - p[i]) * pull * max(cosine, 0)
    if strategy == "procurl-unif":
        pairs = (p * (1 - p))[:, None]
    weights = np.exp(b * pairs / pairs.max())
    weight = weights.max(axis=1) if pairing == "max" else weights.sum(axis=1)
    return weight / weight.sum()


@pytest.mark.parametrize("b", [5.0, 100.0])
@pytest.mark.parametrize(("strategy", "pairing"), [*((s, "max") for s in STRATEGIES), ("procurl-target", "pair")])
def test_probabilities_are_those_of_the_slow_formula(strategy, pairing, b):
    curriculum, x = made(strategy, doubt="mean", pairing=pairing, b=b)
    targets = some_embeddings(5, seed=1).astype(float)
    rates = curriculum.pass_rates(), curriculum.target_pass_rates()
    slow = slow_probabilities(strategy, *rates, x.astype(float), targets, b, pairing=pairing)
    np.testing.assert_allclose(curriculum.probabilities(), slow, rtol=1e-4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_first_draws_have_the_frequencies_of_the_slow_formula(strategy):
    curriculum, x = made(strategy, n=12, doubt="mean")
    slow = slow_probabilities(
        strategy,
        curriculum.pass_rates(),
        curriculum.target_pass_rates(),
        x.astype(float),
        some_embeddings(5, seed=1).astype(float),
    )
    counts = np.bincount([curriculum.batch(3)[0] for _ in range(4000)], minlength=12)
    assert scipy.stats.chisquare(counts, 4000 * slow).pvalue > 0.001


def test_whole_batches_have_the_frequencies_of_draws_without_replacement():
    weight = np.array([1.0, 2.0, 4.0, 8.0])
    p = weight / weight.sum()
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    slow = np.array([p[i] * p[j] / (1 - p[i]) for i, j in pairs])
    rng = np.random.default_rng(0)
    drawn = [tuple(sampling.draw(np.log(weight), 2, rng).tolist()) for _ in range(6000)]
    counts = np.array([drawn.count(pair) for pair in pairs])
    assert scipy.stats.chisquare(counts, 6000 * slow).pvalue > 0.001


def test_draws_with_doubt_follow_pass_rates_that_are_drawn_anew_for_each_batch():
    """Counts are as each batch's own probabilities say, and as the slow formula with draws from the posterior does."""
    curriculum, _ = made("procurl-unif", n=12, played=2)
    posterior = curriculum._posterior(np.arange(12))
    expected, counts = np.zeros(12), np.zeros(12)
    for _ in range(2000):
        expected += curriculum.probabilities()
        counts[curriculum.batch(1)] += 1
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.001
    drawn = np.random.default_rng(0).beta(posterior.a, posterior.b, size=(40_000, 12))
    z = drawn * (1 - drawn)
    weight = np.exp(5 * z / z.max(axis=1, keepdims=True))
    slow = np.mean(weight / weight.sum(axis=1, keepdims=True), axis=0)
    assert scipy.stats.chisquare(counts, 2000 * slow).pvalue > 0.001


def test_batches_from_candidates_are_close_to_the_full_formula():
    """Not exact: the best of the candidates takes the place of the best of all."""
    curriculum, x = made("procurl-target", n=600, played=10, doubt="mean", candidates=200)
    assert not curriculum.is_exact
    slow = slow_probabilities(
        "procurl-target",
        curriculum.pass_rates(),
        curriculum.target_pass_rates(),
        x.astype(float),
        some_embeddings(5, seed=1).astype(float),
    )
    third = np.argsort(np.argsort(slow)) // 200  # which third of the prompts one belongs to, by its probability
    full = np.bincount(third, slow)
    share = np.bincount([third[curriculum.batch(1)[0]] for _ in range(600)], minlength=3) / 600
    np.testing.assert_allclose(share, full, atol=0.08)
    with pytest.raises(ConfigError, match="candidates=600"):
        curriculum.probabilities()


def test_targets_that_are_never_passed_still_pull():
    """With the paper's Z(t) alone every score would be zero."""
    x = some_embeddings(200, 8)
    target = x[:1]
    guided = PromptCurriculum(
        200, x, targets=[0], strategy="procurl-target", doubt="mean", hold_out=True, half_life=1e9
    )
    for _ in range(30):
        guided.record([0] * 8 + list(range(1, 200)), [0] * 8 + [4] * 199)
    assert guided.target_pass_rates()[0] < 0.02
    cosine = (x @ target[0]) / np.linalg.norm(x, axis=1) / np.linalg.norm(target)
    p = guided.probabilities()
    assert p[0] == 0  # held out
    top = np.argsort(cosine)[-21:-1]
    assert p[top].sum() > 2 * 20 / 199


# ---------------------------------------------------------------- the pass-rate model


def test_log_gamma_and_inverse_are_right():
    x = np.array([0.003, 0.5, 1.0, 2.5, 17.0, 400.0])
    np.testing.assert_allclose(log_gamma(x), [math.lgamma(v) for v in x], rtol=1e-8, atol=1e-9)
    a = np.random.default_rng(0).normal(size=(3, 7, 20))
    a = a @ a.transpose(0, 2, 1)
    np.testing.assert_allclose(inverse(a), np.linalg.inv(a), rtol=1e-8, atol=1e-10)


def test_a_prompt_alone_has_the_posterior_of_its_own_results():
    """Without embeddings, played for ever: its own rate, and the others' mean for those never played."""
    curriculum = PromptCurriculum(3)
    for _ in range(200):
        curriculum.record([0, 1], [6, 2])
    played, other = curriculum.pass_rates([0, 1]), curriculum.pass_rates([2])
    np.testing.assert_allclose(played, [0.75, 0.25], atol=0.03)
    np.testing.assert_allclose(other, 0.5, atol=0.05)


def test_old_results_fade():
    """The first prompt was passed, and then no longer; the others stay as they are."""
    rates = {}
    for half_life in (4, 1e9):
        curriculum = PromptCurriculum(3, half_life=half_life)
        for t in range(20):
            curriculum.record([0, 1, 2], [8 if t < 12 else 0, 8, 0])
        rates[half_life] = curriculum.pass_rates([0])[0]
    assert rates[4] < 0.35 and rates[1e9] > 0.5


def test_own_results_move_with_prompts_like_it():
    """One prompt was played only while all were hard; its own failures alone would say that it still is."""
    curriculum = PromptCurriculum(10, 1 + 0.05 * some_embeddings(10, 3), half_life=1000)
    for t in range(20):
        rows = range(10) if t < 5 else range(1, 10)
        curriculum.record(rows, [1 if t < 5 else 7] * len(rows))
    assert curriculum.pass_rates([0])[0] > 0.5


def test_prompts_unlike_all_that_were_played_are_in_doubt():
    x = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0) + 0.05 * some_embeddings(30, 3)
    curriculum = PromptCurriculum(30, x)
    for _ in range(10):
        curriculum.record(range(5), [4] * 5)
    posterior = curriculum._posterior(np.arange(30))
    worth = posterior.a + posterior.b  # samples
    assert worth[10:].max() < 0.7 * worth[5:10].min() < 0.7 * worth[:5].min()


def test_fractional_rewards_count_like_passes():
    both = [PromptCurriculum(4, group=4) for _ in range(3)]
    both[0].record([0, 1], [1, 4])
    both[1].record([0, 1], rewards=[0.25, 1.0])
    both[2].record([0, 1], rewards=[[1, 0, 0, 0], [0.75, 1.25 - 0.25, 1, 1]])
    np.testing.assert_array_equal(both[0].pass_rates(), both[1].pass_rates())
    assert both[2].pass_rates([0]) > 0.2


@pytest.mark.parametrize(("rate", "with_embeddings"), [(0.0, True), (0.02, True), (0.02, False)])
def test_the_model_is_calibrated_on_students_that_learn(rate, with_embeddings):
    """Believed and true pass rates agree in every bin, of prompts played and not; 80 % intervals hold some 80 %."""
    believed, true, rank = [], [], []
    rng = np.random.default_rng(0)
    student = students().student(600, rng, rate=rate)
    curriculum = PromptCurriculum(600, student.embeddings if with_embeddings else None)
    for t in range(80):
        ids = np.array(curriculum.batch(24))
        if t >= 10 and t % 10 == 0:
            posterior = curriculum._posterior(np.arange(600))
            believed.append(posterior.mean)
            true.append(student.pass_rates())
            rank.append(scipy.stats.beta.cdf(true[-1], posterior.a, posterior.b))
        curriculum.record(ids, student.play(ids, 8, rng))
    believed, true, rank = map(np.concatenate, (believed, true, rank))
    bins = np.minimum((believed * 5).astype(int), 4)
    for k in range(5):
        if (bins == k).sum() > 100:
            assert abs(believed[bins == k].mean() - true[bins == k].mean()) < 0.1, k
    assert 0.70 < np.mean((rank > 0.1) & (rank < 0.9)) < 0.90
    if with_embeddings:  # better than one number for all, for prompts never played as well
        assert np.mean((believed - true) ** 2) < 0.5 * np.var(true)


def test_targets_that_are_given_count_by_default():
    x = some_embeddings()
    assert PromptCurriculum(40, x, x[:3]).strategy == "procurl-target"
    for curriculum in (PromptCurriculum(40), PromptCurriculum(40, x), PromptCurriculum(40, targets=[1, 2])):
        assert curriculum.strategy == "procurl-unif"
    assert PromptCurriculum(40, x, x[:3], "uniform").strategy == "uniform"


def test_similar_prompts_share_what_is_known():
    x = np.repeat(np.eye(2, dtype=np.float32), 10, axis=0) + 0.05 * some_embeddings(20, 2)
    curriculum = PromptCurriculum(20, x)
    for _ in range(5):
        curriculum.record([0, 1, 2, 10, 11, 12], [8, 8, 8, 0, 0, 0])
    rates = curriculum.pass_rates()
    assert rates[3:10].min() > 0.7 and rates[13:].max() < 0.3


# ---------------------------------------------------------------- the same again


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equal_processes_agree_and_resumption_is_exact(strategy, tmp_path):
    whole, x = made(strategy, window=1)
    again, _ = made(strategy, window=1)
    cut, _ = made(strategy, window=1, played=0)
    half, _ = made(strategy, window=1, played=3)
    half.save(tmp_path / "prompts.npz")
    cut.load(tmp_path / "prompts.npz")
    play(cut, x, 3, start=3)
    for other in (again, cut):
        assert equal(whole.state_dict(), other.state_dict())
        assert whole.summary() == pytest.approx(other.summary(), nan_ok=True, rel=0, abs=0)
    state = cut.state_dict()
    assert whole.batch(8) == again.batch(8) == cut.batch(8)
    cut.load_state_dict(state)
    again.load_state_dict(state)
    assert cut.batch(8) == again.batch(8)


def equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") if isinstance(
        a[k], np.ndarray) else a[k] == b[k] for k in a)  # fmt: skip


RANK = """
import numpy as np
from procurl.prompts import PromptCurriculum
x = np.random.default_rng(0).normal(size=(3001, 64)).astype(np.float32)
c = PromptCurriculum(3001, x, targets=x[:50] + 1, strategy="procurl-target", candidates=1000)
for t in range(6):
    ids = c.batch(32)
    c.record(ids, (np.array(ids) * 7 + t) % 9)
c.record(range(3001), np.arange(3001) % 9)  # an evaluation: with threads, the sums over so many depend on their number
print(ids, c.pass_rates().tobytes().hex()[:4000])
import sys
print([m for m in ("jax", "torch", "scipy", "matplotlib", "safetensors") if m in sys.modules], file=sys.stderr)
"""


def test_ranks_agree_bitwise_and_load_numpy_alone():
    """In processes of their own, with one and with two threads for products."""
    said = [
        subprocess.run(
            [sys.executable, "-c", RANK],
            capture_output=True, text=True, check=True,
            env={"PATH": "", "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": threads},
        )
        for threads in ("1", "2")
    ]  # fmt: skip
    assert said[0].stdout == said[1].stdout and len(said[0].stdout) > 4000
    assert said[0].stderr.strip() == "[]"


def test_a_batch_is_distinct_and_the_next_one_another():
    curriculum = PromptCurriculum([f"prompt {k}" for k in range(30)], seed=3)
    first, second = curriculum.batch(20), curriculum.batch(20)
    assert len(set(first)) == len(set(second)) == 20 and first != second
    assert sorted(curriculum.batch(30)) == sorted(f"prompt {k}" for k in range(30))


def test_no_prompt_comes_again_within_the_window():
    curriculum = PromptCurriculum(40, window=3, seed=1, candidates=20)
    batches = [set(curriculum.batch(10)) for _ in range(30)]
    for k in range(30):
        assert not any(batches[k] & batches[j] for j in range(max(k - 3, 0), k))


# ---------------------------------------------------------------- what users give

X = some_embeddings(4, 3)
NAN = X * np.array([[1], [np.nan], [1], [1]], np.float32)


class Elsewhere:
    """As a tensor on a GPU or in bfloat16: NumPy cannot read it, and says so by one error or another."""

    def __init__(self, error):
        self.error = error

    def __array__(self, *_, **__):
        raise self.error

    detach = tolist = None


BAD_CURRICULA = {
    "no prompts": ({"prompts": 0}, "at least 1"),
    "an empty list": ({"prompts": []}, "at least one prompt"),
    "one string": ({"prompts": "abc"}, "distinct ids"),
    "duplicates": ({"prompts": ["a", "b", "a"]}, "'a' occurs twice"),
    "an id of another kind": ({"prompts": ["a", 1.5]}, "string or a whole number"),
    "fewer embeddings": ({"prompts": 5, "embeddings": X}, "4 rows, but there are 5"),
    "embeddings without rows": ({"embeddings": X[0]}, r"\[n, d\]"),
    "ragged embeddings": ({"embeddings": [[1.0], [1.0, 2.0], [1.0], [1.0]]}, "different lengths"),
    "NaN": ({"embeddings": NAN}, "row 1 holds NaN"),
    "a zero row": ({"embeddings": X * np.array([[1], [1], [0], [1]], np.float32)}, "row 2 is all zeros"),
    "no target": ({"embeddings": X, "targets": [], "strategy": "procurl-target"}, "targets is empty"),
    "targets missing": ({"embeddings": X, "strategy": "procurl-target"}, "needs targets"),
    "embeddings missing": ({"targets": [0], "strategy": "procurl-target"}, "needs embeddings"),
    "an unknown target": ({"embeddings": X, "targets": [9]}, "unknown id 9"),
    "a target twice": ({"embeddings": X, "targets": [1, 1]}, "twice"),
    "targets of another length": ({"embeddings": X, "targets": np.ones((2, 5))}, "5 dimensions, but embeddings has 3"),
    "targets with NaN": ({"embeddings": X, "targets": np.full((2, 3), np.nan)}, "row 0 holds NaN"),
    "a set, whose order is no order": ({"prompts": {"a", "b"}}, "sequence of distinct ids"),
    "a set of targets": ({"embeddings": X, "targets": {1, 2}}, "expected ids of prompts"),
    "a tensor in bfloat16": ({"embeddings": Elsewhere(TypeError("BFloat16"))}, r"BFloat16.*x\.detach\(\)"),
    "a tensor with a gradient": ({"embeddings": Elsewhere(RuntimeError("grad"))}, r"x\.detach\(\)"),
    "numbers beyond 32 bits": ({"embeddings": X.astype(float) * 1e300}, "beyond 1e15"),
    "a misspelt strategy": ({"strategy": "procurl-targt"}, "Did you mean procurl-target"),
    "a group of none": ({"group": 0}, "at least 1"),
    "a negative window": ({"window": -1}, "at least 0"),
    "a word for False": ({"center": "no"}, "center = 'no': expected True or False"),
    "a masked array": ({"embeddings": np.ma.masked_greater(X, 0)}, "masked array"),
    "hold_out without ids": ({"embeddings": X, "targets": X, "hold_out": True}, "ids of prompts"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CURRICULA)
def test_bad_curricula(name):
    options, message = BAD_CURRICULA[name]
    with pytest.raises(ConfigError, match=message):
        PromptCurriculum(**{"prompts": 4, **options})


BAD_RECORDS = {
    "an unknown id": ({"ids": ["a", "z"], "passes": [1, 1]}, "unknown id 'z'"),
    "one string": ({"ids": "ab", "passes": [1, 1]}, "sequence of prompts' ids"),
    "no ids": ({"ids": [], "passes": []}, "ids is empty"),
    "too many passes": ({"ids": ["a", "b"], "passes": [1, 9]}, "9 of a group of 8 .id 'b'"),
    "too many for this group": ({"ids": ["a", "b"], "passes": [1, 5], "group": 4}, "5 of a group of 4"),
    "negative passes": ({"ids": ["a", "b"], "passes": [1, -1]}, "-1 of a group"),
    "a rate for a number of passes": ({"ids": ["a", "b"], "passes": [0.5, 1.0]}, "0.5 of a group of 8 .* rewards="),
    "NaN": ({"ids": ["a", "b"], "passes": [1, np.nan]}, "NaN"),
    "another length": ({"ids": ["a", "b"], "passes": [1]}, "there are 2 ids"),
    "a masked array": ({"ids": ["a", "b"], "passes": np.ma.array([1, 2], mask=[0, 1])}, "masked array"),
    "text": ({"ids": ["a"], "passes": ["many"]}, "expected numbers"),
    "a group of none": ({"ids": ["a"], "passes": [0], "group": 0}, "at least 1"),
    "nothing": ({"ids": ["a"]}, "either passes"),
    "both": ({"ids": ["a"], "passes": [1], "rewards": [1.0]}, "either passes"),
    "a reward above 1": ({"ids": ["a", "b"], "rewards": [1.0, 1.5]}, "from 0 to 1"),
    "a reward of NaN": ({"ids": ["a", "b"], "rewards": [1.0, np.nan]}, "NaN"),
    "groups that disagree": ({"ids": ["a"], "rewards": [[1.0, 0.0]], "group": 4}, "2 columns"),
    "a group that disagrees": ({"ids": ["a", "b"], "rewards": [[1, 0]] * 2, "group": np.array([2, 3])}, "2 columns"),
    "a set of ids": ({"ids": {"a", "b"}, "passes": [1, 2]}, "sequence of prompts' ids"),
    "a tensor elsewhere": ({"ids": ["a"], "passes": Elsewhere(RuntimeError("grad"))}, r"x\.detach\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records_leave_nothing_behind(name):
    curriculum = PromptCurriculum(["a", "b", "c"], some_embeddings(3))
    curriculum.record(["a"], [3])
    before = curriculum.state_dict()
    options, message = BAD_RECORDS[name]
    with pytest.raises(ConfigError, match=message):
        curriculum.record(**options)
    assert equal(before, curriculum.state_dict())


def test_more_prompts_than_there_are():
    curriculum = PromptCurriculum(5, window=1)
    with pytest.raises(ConfigError, match="only 5 prompts"):
        curriculum.batch(6)
    with pytest.raises(ConfigError, match="smaller window"):
        curriculum.batch(3)
    curriculum.batch(2), curriculum.batch(2)
    assert curriculum.summary()["batches"] == 2


def test_states_of_others_are_refused(tmp_path):
    curriculum, _ = made()
    before, five = curriculum.state_dict(), some_embeddings(5, seed=1)
    others = {
        "strategy": made("procurl-unif")[0],
        "seed": made(seed=1)[0],
        "prompts": made(n=41)[0],
        "embeddings": PromptCurriculum(40, -some_embeddings(), five, "procurl-target"),
        "targets": PromptCurriculum(40, some_embeddings(), some_embeddings(4), "procurl-target"),
        "ids": PromptCurriculum(range(40), some_embeddings(), five, "procurl-target"),
    }
    for name, other in others.items():
        with pytest.raises(CheckpointError, match=name):
            curriculum.load_state_dict(other.state_dict())
    spoilt = {
        "passes": before["passes"][:, 1:], "means": before["means"] * np.nan, "played": before["played"][::-1],
        "time": -1, "batches": 2**70, "version": None, "seen_at": before["seen_at"] + 99,
        "precisions": -before["precisions"],
    }  # fmt: skip
    for name, value in spoilt.items():
        with pytest.raises(CheckpointError, match="damaged"):
            curriculum.load_state_dict({**before, name: value})
    with pytest.raises(CheckpointError, match="lacks 'scores'"):
        curriculum.load_state_dict({k: v for k, v in before.items() if k != "scores"})
    with pytest.raises(NewerFormatError):
        curriculum.load_state_dict({**before, "version": 99})
    with pytest.raises(CheckpointError, match="state_dict"):
        curriculum.load_state_dict([])
    path = curriculum.save(tmp_path / "state.npz")
    content = bytearray(path.read_bytes())
    for place in (len(content) // 3, len(content) // 2):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(CheckpointError):
            curriculum.load(path)
    assert equal(before, curriculum.state_dict())


def test_a_file_of_this_version_is_read_for_ever():
    """tests/golden/prompts-1.npz: ["a", "b", "c"], two batches of two, each recorded with 4 and 0 passes."""
    curriculum = PromptCurriculum(["a", "b", "c"])
    curriculum.load(ROOT / "tests/golden/prompts-1.npz")
    assert curriculum.summary()["batches"] == curriculum.summary()["records"] == 2
    assert len(curriculum.batch(3)) == 3


# ---------------------------------------------------------------- is there a curriculum?


def test_a_curriculum_that_does_nothing_says_so_once(caplog):
    caplog.set_level(logging.WARNING, "procurl")
    curriculum = PromptCurriculum(300)
    for _ in range(45):
        ids = curriculum.batch(2)
        curriculum.record(ids, [4, 4])
    assert len(caplog.records) == 1 and "without embeddings" in caplog.text
    hopeless = PromptCurriculum(10, strict=True)
    for _ in range(19):
        hopeless.record(range(10), [0] * 10)
    with pytest.raises(IdleError, match="hardly a sample passes"):
        hopeless.record(range(10), [0] * 10)


def test_a_curriculum_that_teaches_and_a_uniform_one_are_not_warned_about(caplog):
    for strategy in STRATEGIES:
        made(strategy, played=40)
    assert not caplog.records


def test_summary_and_picture(tmp_path):
    curriculum, _ = made(played=20)
    found = curriculum.summary()
    assert found["prompts"] == 40 and found["records"] == 20
    assert 0 < found["effective_share"] < 0.95
    assert found["recent_similarity"] > found["pool_similarity"]
    assert set(found) >= {"never_played", "mean_pass_rate", "solved", "hopeless", "target_pass_rate"}
    figure = curriculum.plot(tmp_path / "curriculum.png")
    assert [axes.get_xlabel() for axes in figure.axes] == ["record", "batch", "believed pass rate now"]
    assert (tmp_path / "curriculum.png").read_bytes()[:4] == b"\x89PNG"
