"""Is there a curriculum, and does it go to the targets? The numbers, and the warnings where there is none."""

import logging

import jax
import numpy as np
import pytest
import worlds

import procurl
from procurl.errors import IdleError
from procurl.runs.idle import PATIENCE, IdleWatch
from procurl.runs.taught import Meter
from procurl.types import Task


def box(**changed):
    arguments = {"pool_size": 400, "n_targets": 3, "n_held_out": 2, "fresh_seeds": False}
    return procurl.task_space([0.0, 10.0], [1.0, 30.0], target=[1.0, 30.0], **{**arguments, **changed})


@pytest.fixture(scope="module")
def space():
    return box()


@pytest.fixture(scope="module")
def meter(space):
    return Meter(space)


def drawn(space, rows):
    return np.asarray(space.pool.context)[rows]


@pytest.mark.parametrize("n", [30, 400, 4000])
@pytest.mark.parametrize("invented", [False, True])
def test_uniform_draws_use_the_whole_pool(space, meter, n, invented):
    rows = np.random.default_rng(n).integers(0, 400, n)
    share = meter.effective_share(drawn(space, rows), None if invented else rows)
    assert 0.9 <= share <= 1.0
    assert meter.chance_of_uniform(drawn(space, rows), None if invented else rows) > 0.01


def test_a_tenth_of_the_pool_is_a_tenth(space, meter):
    rows = np.random.default_rng(0).integers(0, 40, 20_000)
    assert meter.effective_share(drawn(space, rows), rows) == pytest.approx(0.1, rel=0.1)


def test_exp_of_the_entropy_over_the_pool(space, meter):
    """The definition, from counts so large that chance plays no part."""
    p = np.random.default_rng(0).dirichlet(np.full(400, 0.3))
    rows = np.repeat(np.arange(400), np.round(p * 200_000).astype(int))
    p = np.bincount(rows, minlength=400) / len(rows)
    expected = np.exp(-np.sum(p[p > 0] * np.log(p[p > 0]))) / 400
    assert meter.effective_share(drawn(space, rows), rows) == pytest.approx(expected, rel=0.01)


def test_tasks_of_one_context_count_together():
    levels = procurl.task_space([0.0], [2.0], target=[2.0], pool=np.repeat([0.0, 1.0, 2.0], 50)[:, None])
    meter = Meter(levels)
    assert meter.effective_share(np.full((60, 1), 2.0)) == pytest.approx(1 / 3, rel=0.05)
    one_row = np.full(60, 149)
    assert meter.effective_share(np.full((60, 1), 2.0), one_row) == pytest.approx(1 / 3, rel=0.05)


def test_distances_are_in_shares_of_the_box(space, meter):
    there = np.array([[1.0, 30.0], [0.5, 30.0], [1.0, 20.0], [np.nan, np.nan]])
    assert meter.target_distance(there) == pytest.approx((0.0 + 0.5 + 0.5) / 3)
    assert np.isnan(meter.target_distance(np.full((4, 2), np.nan)))


def test_half_of_the_space_is_not_uniform(space, meter):
    rows = np.flatnonzero(np.asarray(space.pool.context)[:, 0] > 0.5)
    rows = np.random.default_rng(0).choice(rows, 200)
    assert meter.chance_of_uniform(drawn(space, rows), rows) < 1e-6


# --- a loop of one's own ---


def played(teacher, value=None, ret=lambda context: 0.0, updates=PATIENCE, **options):
    curriculum = procurl.Curriculum(teacher, every=30, unit="episodes", **options)
    for _ in range(updates):
        while not curriculum.due:
            task = curriculum.next()
            curriculum.record(task, ret=float(ret(task.context)), length=1)
        curriculum.observe(value)
    return curriculum


def near_is_easy(context):
    return -1600.0 + 1500.0 * (1.0 - context[..., 0])


def warnings_of(caplog):
    return [r.message for r in caplog.records if r.name == "procurl" and r.levelno >= logging.WARNING]


def test_the_numbers_after_an_update(space, caplog):
    curriculum = played(procurl.ProCuRLUnif(space), lambda t: near_is_easy(t.context), near_is_easy)
    summary = curriculum.summary
    assert summary["effective_share"] < 0.8 and 0 < summary["target_distance"] < 1.5
    assert -1600 <= summary["value_mean"] <= -100 and summary["value_spread"] > 100
    assert summary["value_low"] < 0.1 and summary["value_high"] < 0.1
    assert summary["value_learnable_tasks"] > 0.8 and np.isnan(summary["value_learnable_targets"])
    assert warnings_of(caplog) == []
    low, high = curriculum.value_range
    assert -1600 <= low < -1500 and -200 < high <= -100


def test_values_far_outside_their_range_are_told(caplog):
    teacher = procurl.ProCuRLUnif(box(value_range=(0.0, 1.0)))
    played(teacher, lambda t: np.full(len(t.seed), 500.0), updates=2 * PATIENCE)
    [told] = warnings_of(caplog)
    assert (
        "nearly all of the student's values (mean 500) were at or beyond the upper end of value_range = (0, 1)" in told
    )
    assert "Give the range of your returns, or leave value_range out to have it learnt." in told


def test_values_at_one_end_of_a_learnt_range_are_told(space, caplog):
    """SAC's critic on Pendulum: -5 to -23, where returns are -1200 to -1450."""
    played(
        procurl.ProCuRLUnif(space), lambda t: -5.0 - 18.0 * t.context[:, 0], lambda c: -1200.0 - 250.0 * c[0],
        updates=PATIENCE,
    )  # fmt: skip
    [told] = warnings_of(caplog)
    assert "upper end of value_range = (-1" in told and "while returns were -14" in told
    assert "value=procurl.ReturnRegressor(space)" in told


def test_strict_makes_it_an_error():
    teacher = procurl.ProCuRLUnif(box(value_range=(0.0, 1.0)))
    with pytest.raises(IdleError, match="teaches nothing"):
        played(teacher, lambda t: np.full(len(t.seed), 500.0), strict=True)


def test_values_that_are_all_alike_are_told(space, caplog):
    played(procurl.ProCuRLUnif(space), lambda t: np.full(len(t.seed), 0.5), lambda c: round(c[0]))
    [told] = warnings_of(caplog)
    assert "ProCuRLUnif proposed tasks as uniform draws would (effective share" in told
    assert (
        "the student's values are alike on all tasks: does it see the context (Gymnasium: TaskEnv(observe=True))?"
        in told
    )


def test_targets_out_of_reach_are_told(caplog):
    space = box(value_range=(0.0, 1.0))
    played(procurl.ProCuRLTarget(space), lambda t: np.where(t.row >= 400, 0.0, 0.7 - 0.5 * t.context[:, 0]))
    [told] = warnings_of(caplog)
    assert "no target can be learnt yet, and until then its choice is uniform. procurl-path guides earlier." in told


def test_returns_that_are_all_alike_are_told(space, caplog):
    played(procurl.ProCuRLPath(space))
    [told] = warnings_of(caplog)
    assert "all returns were alike, so that there is nothing to go by: put easier tasks into the space" in told


def test_returns_that_contradict_the_given_range_are_told(caplog):
    played(procurl.IID(box(value_range=(0.0, 1.0))), ret=lambda c: 200.0 * c[0], updates=3)
    [told] = warnings_of(caplog)
    assert "of the returns lie outside value_range = (0, 1), for example" in told


@pytest.mark.parametrize("name", ["iid", "target"])
def test_who_means_to_be_uniform_is_left_alone(space, caplog, name):
    played(procurl.make_teacher(name, space), strict=True)
    assert warnings_of(caplog) == []


def test_everything_solved_is_no_reason_to_complain(caplog):
    space = box(value_range=(0.0, 1.0))
    played(procurl.ProCuRLPath(space), ret=lambda c: 1.0)
    played(procurl.ProCuRLUnif(space), lambda t: np.ones(len(t.seed)), lambda c: 1.0)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("learnable", [{}, {"learnable_tasks": 0.5}, {"learnable_targets": float("nan")}])
def test_numbers_that_a_teacher_did_not_ask_for_are_not_missed(caplog, learnable):
    """The engine leaves out what no seed has: ProCuRL-Unif asks for no targets."""
    space = box(value_range=(0.0, 1.0))
    watch = IdleWatch(procurl.ProCuRLUnif(space, beta=0.0))
    values = {"mean": 0.5, "spread": 0.2, "low": 0.0, "high": 0.0, **learnable}
    for k in range(PATIENCE):
        rows = np.random.default_rng(k).integers(0, 400, 200)
        watch.saw(Task(drawn(space, rows), rows, rows), values, [0.5], (0.0, 1.0))
    [told] = warnings_of(caplog)
    assert "its temperature is too high for these values: leave beta out, or give a larger one." in told


# --- looking ahead ---


def test_a_preview_uses_nothing_up(space):
    one, other = (procurl.Curriculum(procurl.ProCuRLUnif(space), every=30, unit="episodes") for _ in range(2))
    seen = one.preview(50)
    assert seen.context.shape == (50, 2) and (one.preview(50).context == seen.context).all()
    for _ in range(5):
        a, b = one.next(), other.next()
        assert (a.context == b.context).all() and a.seed == b.seed
    with pytest.raises(procurl.errors.ConfigError, match="n = 0"):
        one.preview(0)


def test_next_says_how_to_look_ahead(space):
    curriculum = procurl.Curriculum(procurl.IID(space), every=2, unit="episodes")
    for _ in range(5):
        curriculum.next()
    with pytest.raises(procurl.errors.ConfigError, match=r"without playing them: curriculum\.preview\("):
        curriculum.next()


def test_weights_are_exact_over_the_pool_and_estimated_beyond(space):
    curriculum = played(procurl.ProCuRLUnif(space), lambda t: near_is_easy(t.context), near_is_easy, updates=1)
    weights = curriculum.weights()
    seen = np.bincount(curriculum.preview(20_000).row, minlength=400) / 20_000
    assert weights.sum() == pytest.approx(1) and np.abs(weights - seen).max() < 0.01
    everywhere = procurl.Curriculum(procurl.ProCuRLPath(space), every=30).weights()
    assert everywhere.shape == (400,) and everywhere.sum() == pytest.approx(1)


# --- the engine ---


def test_a_run_records_what_was_taught(tmp_path, caplog):
    space = worlds.walk_space(value_range=None)
    result = procurl.train(
        worlds.Walk(), procurl.ProCuRLUnif(space), worlds.SMALL, seeds=2, steps=256, out=tmp_path / "run"
    )
    trace = procurl.load_result(tmp_path / "run").trace
    shape = result.trace["train_return"].shape
    for name in ("effective_share", "box_distance", "value_mean", "value_spread", "value_range_low"):
        assert trace[name].shape == shape and np.isfinite(trace[name]).any(), name
    assert (trace["value_range_low"] <= trace["value_range_high"]).all()
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), trace, result.trace))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_curriculum_can_be_drawn(dim, tmp_path):
    pytest.importorskip("matplotlib")
    space = procurl.task_space([0.0] * dim, [1.0] * dim, target=[0.9] * dim, pool_size=30, n_targets=2, n_held_out=1)
    figure = procurl.plot_curriculum(procurl.Curriculum(procurl.IID(space), every=10), n=20)
    [axes] = figure.axes
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "proposed now" in words and axes.get_title() == "after 0 updates"
    figure.savefig(tmp_path / "picture.png")


def test_labels_are_drawn_as_bars(tmp_path):
    pytest.importorskip("matplotlib")
    space = procurl.categorical_space(["5x5", "6x6", "8x8"], target="8x8")
    [axes] = procurl.plot_curriculum(procurl.Curriculum(procurl.IID(space), every=10), n=20).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5x5", "6x6", "8x8"]
    assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(1)
