"""What figures show, against the numbers they are drawn from; comparisons that were run in parts."""

import dataclasses
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from procurl.bench import stats
from procurl.bench.report import figures, markdown, style
from procurl.bench.report.figures import curricula, curves
from procurl.bench.report.studies import collect
from procurl.envs.minigrid.families import BITS, BLOCKED, CROSSING, FAMILIES
from procurl.errors import ConfigError
from procurl.runs.store.result import Result
from procurl.teachers import TEACHERS

ROOT = Path(__file__).parent.parent
STEPS = np.arange(6) * 100_000


@pytest.fixture(autouse=True)
def forget_figures():
    yield
    figures.plt.close("all")


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(family):
    """Two seeds, three iterations of four episodes; `family` i[2, 3, 4], -1 where no episode began."""
    family = np.asarray(family)
    context = np.where(family[..., None] < 0, np.nan, BITS[family])
    config = {"setting": "minigrid", "teacher": {"class": "IID"}, "config": {"ppo": {"n_steps": 100}}}
    return Result(
        config=config, provenance={}, timing={}, seeds=np.arange(2), steps=np.array([0, 300]),
        task_ret=np.zeros((2, 2, 1)), task_success=np.zeros((2, 2, 1)), held_out={"context": BITS[[BLOCKED]]},
        trace={"task_context": context.astype(np.float32), "started": np.full((2, 3), 4)}, params={},
    )  # fmt: skip


def test_shares_of_minigrid_s_families(monkeypatch):
    monkeypatch.setattr(curricula, "smoothed", lambda x: x)
    family = np.full((2, 3, 4), CROSSING)
    family[:, 1, :2], family[0, 2], family[1, 2, 1:] = BLOCKED, BLOCKED, -1  # half, then four of five
    picture = figures.curriculum("minigrid", [run_of(family)])["curriculum"]
    areas = {area.get_label(): area for area in picture.axes[0].collections}
    assert set(areas) == {f.name for f in FAMILIES} == set(figures.FAMILY_COLOURS)
    outline = areas["blocked-unlock-pickup"].get_paths()[0].vertices  # the lowest area: its top is the share
    tops = [outline[np.isclose(outline[:, 0], x), 1].max() for x in (0.0, 1e-4, 2e-4)]
    np.testing.assert_allclose(tops, [0.0, 0.5, 0.8])
    figures.plt.close(picture)


def labelled(number, names=("5x5", "6x6", "8x8")):
    """As above, with tasks that are names; the target is the last."""
    plain = run_of(np.zeros((2, 3, 4), int))
    context = np.where(np.asarray(number) < 0, np.nan, number)[..., None].astype(np.float32)
    space = {"names": ["task"], "low": [0.0], "high": [len(names) - 1.0], "labels": list(names)}
    config = {**plain.config, "setting": None, "space": space}
    held_out = {"context": np.full((2, 1), len(names) - 1, np.float32)}
    return dataclasses.replace(plain, config=config, held_out=held_out, trace={**plain.trace, "task_context": context})


def test_tasks_that_are_names_are_drawn_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(curricula, "smoothed", lambda x: x)
    number = np.zeros((2, 3, 4), int)
    number[:, 1, :2], number[0, 2], number[1, 2] = 2, 1, -1
    result = labelled(number)
    pictures = figures.curriculum("custom", [result])
    assert set(pictures) == {"curriculum"}, "no distances"
    axes = pictures["curriculum"].axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["5x5", "6x6", "8x8 (target)"]
    shares = np.reshape(axes.collections[0].get_array(), (3, 3))  # labels x iterations
    np.testing.assert_allclose(shares, [[1, 0.5, 0], [0, 0, 1], [0, 0.5, 0]])
    counted = {**result.trace, "steps": np.cumsum([[30, 10, 10], [20, 10, 10]], axis=1)}  # also for its teacher
    (axes, _) = figures.label_shares([dataclasses.replace(result, trace=counted)]).axes
    np.testing.assert_allclose(axes.collections[0].get_coordinates()[0, :, 0] * 1e6, [0, 25, 35, 45])
    with pytest.raises(ConfigError, match=r"labels, which have no distance to a target: draw label_shares"):
        figures.figure_three([result])
    with pytest.raises(ConfigError, match=r"have no labels: draw curriculum_scatter"):
        figures.label_shares([run()])
    many = figures.label_shares([labelled(number * 40, [f"map {k}" for k in range(100)])])
    assert len(many.axes[0].get_yticks()) == 25, "as many as can be read"
    figures.plt.close("all")


def test_comparisons_that_ran_side_by_side_are_joined_without_their_speeds(tmp_path, capsys):
    compare = script(ROOT / "benchmarks/compare.py")
    for k, name in enumerate(("procurl-target:release", "iid")):
        row = {"mean": [0.0, 1.0 - k], "standard_error": [0, 0], "final_per_seed": [1.0 - k] * 3, "area": [0.5, 0.1]}
        summary = {
            "setting": "minigrid", "student": "release", "seeds": 3, "date": "", "steps": [0, 9], "space": {},
            "provenance": {"devices": ["cpu"]}, "n_steps": 9, "teachers": {name: {**row, "wall_seconds": 5}},
        }  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "a-minigrid.json").write_text(json.dumps(summary))
        np.savez(tmp_path / name / "a-minigrid.npz", **{f"{name}/context": np.zeros(k + 1), "held_out": np.zeros(1)})
    parts = sorted(tmp_path.iterdir())
    compare.merge("a-minigrid", parts, tmp_path)
    merged = json.loads((tmp_path / "a-minigrid.json").read_text())
    assert set(merged["teachers"]) == {"procurl-target:release", "iid"} and merged["student"] == "release"
    assert all("wall_seconds" not in row for row in merged["teachers"].values())
    assert "[+1.000, +1.000]" in capsys.readouterr().out  # the lead over IID
    with np.load(tmp_path / "a-minigrid.npz") as arrays:
        assert set(arrays) == {"procurl-target:release/context", "iid/context", "held_out"}
    part = parts[0] / "a-minigrid.json"
    part.write_text(part.read_text().replace('"release"', '"paper"'))
    with pytest.raises(SystemExit, match="student"):
        compare.merge("a-minigrid", parts, tmp_path)


def test_strategies_that_are_added_later_say_where_they_come_from(tmp_path):
    """Also one that played for its teacher, with an axis of its own; what was recorded before stays as it was."""
    compare = script(ROOT / "benchmarks/compare.py")
    row = {"mean": [0.0, 1.0], "standard_error": [0.1, 0.1], "final_per_seed": [1.0] * 3, "area": [0.5, 0.1]}
    row |= {"teacher": {"class": "IID"}, "steps_per_second": 7}
    old = {
        "setting": "maze-plane", "seeds": 3, "date": "2026-01-01", "steps": [0, 9], "n_steps": 9,
        "space": {"n_pool": 2, "value_range": [0, 1], "sha256": "a"}, "teachers": {"iid": row},
        "provenance": {"devices": ["cpu"], "commit": "old"},
    }  # fmt: skip
    new = {**old, "student": "paper", "first_seed": 0, "date": "2026-02-02", "space": {**old["space"], "sha256": "b"}}
    new |= {"provenance": {"devices": ["gpu"], "commit": "new"}}
    new |= {"steps": [0, 11], "teachers": {"sfl": row | {"teacher": {"class": "SFL"}, "steps": [0, 11]}}}
    for name, part in (("results", old), ("more", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a-maze-plane.json").write_text(json.dumps(part))
    results, more = tmp_path / "results", tmp_path / "more"
    compare.merge("a-maze-plane", [results, more], results)
    merged = json.loads((results / "a-maze-plane.json").read_text())
    assert {k: v for k, v in merged.items() if k not in ("teachers", "first_seed")} == {
        k: v for k, v in old.items() if k != "teachers"
    }
    assert merged["teachers"]["iid"] == row, "with its speed"
    shown = markdown.tables(collect([results]))
    assert "- IID: 2026-01-01, commit old" in shown and "- SFL: 2026-02-02, commit new" in shown
    assert re.search(r"\| SFL +\| 3 +\| 11 ", shown) and re.search(r"\| IID +\| 3 +\| 9 ", shown)
    for changed, message in (({"n_steps": 8}, "n_steps = 8"), ({"space": {"n_pool": 3}}, "space = .*'n_pool': 3")):
        (more / "a-maze-plane.json").write_text(json.dumps(new | changed))
        with pytest.raises(SystemExit, match=message):
            compare.merge("a-maze-plane", [results, more], results)
    for seeds, steps in ((range(4), 9), (range(3), 10), (range(1, 4), 9)):
        with pytest.raises(SystemExit, match="holds 3 seeds from 0 of 9 steps"):
            compare.require_same_length(results, merged, seeds, steps)
    compare.require_same_length(results, merged, range(3), 8)  # which is rounded up to whole iterations


# --- the paper's figures


def run(teacher="IID", *, setting="maze-plane", ret=None, d=3, seed=0, **fields):
    """A run of `len(ret)` seeds with forty iterations of four episodes and contexts of d dimensions in [0, 10]."""
    rng = np.random.default_rng(seed)
    ret = rng.random((5, len(STEPS))) if ret is None else np.asarray(ret, np.float64)
    context = rng.uniform(0, 10, (len(ret), 40, 4, d)).astype(np.float32)
    targets = rng.uniform(4, 6, (7, d))
    return Result(
        config={
            "setting": setting, "teacher": {"class": teacher, **fields}, "config": {"ppo": {"n_steps": 12_500}},
            "space": {"names": ["goal_x", "goal_y", "tolerance"][:d], "low": [0.0] * d, "high": [10.0] * d,
                      "value_range": [0.0, 1.0]},
        },
        provenance={}, timing={}, seeds=np.arange(len(ret)), steps=STEPS, task_ret=ret[..., None],
        task_success=ret[..., None], held_out={"context": targets}, params={},
        trace={"task_context": context, "target_distance": np.abs(context - 5).mean(axis=2),
               "started": np.full(context.shape[:2], 4)},
    )  # fmt: skip


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def band(collection):
    """Lower and upper edge of a band."""
    x, y = collection.get_paths()[0].vertices.T
    return np.array([[y[x == value].min(), y[x == value].max()] for value in np.unique(x)]).T


def legend(figure):
    (found,) = [child for child in figure.get_children() if type(child).__name__ == "Legend"]
    return [text.get_text() for text in found.get_texts()]


def test_figure_two_shows_the_mean_and_one_standard_error():
    runs = {"point-mass-1t": [run("IID"), run("CURROT", seed=1)], "maze-plane": [run("CURROT", seed=2)]}
    for smooth in (1, 2):
        figure = figures.figure_two(runs, smooth=smooth)
        for axes, results in zip(figure.axes, runs.values(), strict=True):
            for line, area, result in zip(axes.get_lines(), axes.collections, results, strict=True):
                averaged = [result.ret[:, max(0, e - smooth + 1) : e + 1].mean(axis=1) for e in range(len(STEPS))]
                mean, error = stats.mean_and_error(np.stack(averaged, axis=1))
                np.testing.assert_allclose(line.get_xdata(), STEPS / 1e6)
                np.testing.assert_allclose(line.get_ydata(), mean)
                np.testing.assert_allclose(band(area), [mean - error, mean + error])
        assert legend(figure) == ["CURROT", "IID"], "one for all panels, in one order"
        assert [a.get_title() for a in figure.axes] == ["(a) PM-s:1T, 5 seeds", "(b) SGR, 5 seeds"]
        first, second = map(lines, figure.axes)
        for look in ("color", "marker", "linestyle"):
            of = f"get_{look}"
            assert getattr(first["CURROT"], of)() == getattr(second["CURROT"], of)(), "the same in every panel"


def test_every_strategy_has_its_own_colour_and_its_own_marker():
    assert set(style.COLOURS) == set(style.MARKERS) == {cls.__name__ for cls in TEACHERS.values()}
    assert len(set(style.COLOURS.values())) == len(set(style.MARKERS.values())) == len(style.COLOURS)
    figure = figures.figure_two({"maze-plane": [run(teacher) for teacher in [*style.COLOURS, "TheirOwn"]]})
    drawn = {(line.get_color(), line.get_marker()) for line in figure.axes[0].get_lines()}
    assert len({c for c, _ in drawn}) == len({m for _, m in drawn}) == len(style.COLOURS) + 1


def test_variants_of_a_strategy_differ_in_their_lines_in_every_panel():
    variants = [run("PLR", score="abs_gae"), run("PLR", score="signed_gae")]
    figure = figures.figure_two({"maze-plane": variants, "point-mass-1t": variants[::-1]})
    for axes in figure.axes:
        found = {label: (line.get_color(), line.get_linestyle()) for label, line in lines(axes).items()}
        assert found == {
            "PLR (score=abs_gae)": (style.COLOURS["PLR"], "-"), "PLR (score=signed_gae)": (style.COLOURS["PLR"], "--"),
        }  # fmt: skip


def test_failed_seeds_are_left_out_of_every_curve_and_said():
    sound = np.random.default_rng(0).random((4, len(STEPS)))
    failed = np.full((2, len(STEPS)), 0.9)
    failed[0, 2], failed[1, -1] = np.nan, np.inf
    results = [run("IID", ret=np.concatenate([sound, failed])), run("PLR", ret=failed)]
    for figure in (
        figures.figure_two({"maze-plane": results}, smooth=1),
        figures.learning_curves(results),
        figures.learning_curves(results, band="ci"),
    ):
        axes = figure.axes[0]
        np.testing.assert_allclose(lines(axes)["IID"].get_ydata(), sound.mean(axis=0))
        assert np.isnan(lines(axes)["PLR"].get_ydata()).all()
        assert axes.get_title().endswith("0 to 4 seeds (4 failed, left out)")
    figure = figures.performance_profiles({"maze-plane": results})
    assert set(lines(figure.axes[0])) == {"IID"}
    assert "4 failed" in figure.axes[0].get_title()


def test_recorded_curves_are_drawn_as_they_are():
    mean, error = np.linspace(0, 1, 6), np.full(6, 0.1)
    recorded = figures.Curve("CURROT release", "CURROT", STEPS, mean, mean - error, mean + error, n_seeds=50)
    figure = figures.figure_two({"maze-plane": [recorded, run("IID")]})
    drawn = lines(figure.axes[0])
    np.testing.assert_array_equal(drawn["CURROT release"].get_ydata(), mean)
    assert drawn["CURROT release"].get_color() == style.COLOURS["CURROT"]
    assert figure.axes[0].get_title() == "(a) SGR, 5 to 50 seeds"


def test_profiles_show_the_share_of_seeds_above_each_return():
    result = run("IID", ret=np.repeat([[0.2], [0.4], [0.4], [0.9]], len(STEPS), axis=1))
    figure = figures.performance_profiles({"maze-plane": [result], "point-mass-2g": [run("PLR")]})
    line = lines(figure.axes[0])["IID"]
    thresholds = line.get_xdata()
    assert thresholds[0] == 0 and thresholds[-1] == 1
    np.testing.assert_allclose(line.get_ydata(), [(result.ret[:, -1] > t).mean() for t in thresholds])
    expected = stats.profile_interval(result.ret[:, -1], thresholds)
    np.testing.assert_allclose(band(figure.axes[0].collections[0]), expected)
    assert legend(figure) == ["PLR", "IID"]


def test_figure_three_shows_distances_the_third_dimension_and_the_tasks(monkeypatch):
    monkeypatch.setattr(curricula, "smoothed", lambda x: x)
    results = [run("IID"), run("ProCuRLTarget", seed=1)]
    results[0].trace["task_context"][:, :, 3] = np.nan  # three episodes began
    results[0].trace["task_context"][0, 7] = np.nan  # none
    figure = figures.figure_three(results)
    above, below = figure.axes[:4], figure.axes[4:]
    titles = [a.get_title() for a in above]
    assert titles == ["(a) SGR: goal x", "(b) SGR: goal y", "(c) SGR: tolerance", "(d) SGR: tolerance"]
    for result, label in zip(results, ("IID", "ProCuRL-Target"), strict=True):
        for k in range(3):
            mean = result.trace["target_distance"][..., k].mean(axis=0)
            np.testing.assert_allclose(lines(above[k])[label].get_ydata(), mean, rtol=1e-5)
        line = lines(above[3])[label]
        np.testing.assert_allclose(line.get_xdata(), np.arange(40) * 0.0125)
        chosen = result.trace["task_context"][..., 2]
        kept = [i for i in range(40) if np.isfinite(chosen[:, i]).any(axis=1).all()]
        expected = [np.mean([np.nanmean(seed) for seed in chosen[:, i]]) for i in kept]
        np.testing.assert_allclose(line.get_ydata()[kept], expected, rtol=1e-5)
        assert len(kept) == (39 if label == "IID" else 40)
    target = lines(above[3])["mean of the target"].get_ydata()
    np.testing.assert_allclose(target, results[0].held_out["context"][:, 2].mean())

    assert len(below) == 2 * 4, "a row per strategy: ProCuRL-Target's, then IID's, as in the legend"
    for row, result in zip(np.reshape(below, (2, 4)), results[::-1], strict=True):
        for axes, first in zip(row, (0, 13, 25, 38), strict=True):  # two of forty iterations each
            crosses, dots = (c.get_offsets() for c in axes.collections)
            np.testing.assert_allclose(crosses, result.held_out["context"][:, :2])
            played = result.trace["task_context"][:, first : first + 2].reshape(-1, 3)[:, :2]
            played = played[np.isfinite(played[:, 0])]
            np.testing.assert_allclose(sorted(map(tuple, dots)), sorted(map(tuple, played)))
    assert [below[k].get_title() for k in (0, 3, 4)] == ["0 to 5 % of training", "95 to 100 % of training", ""]


@pytest.mark.parametrize(("d", "n_panels"), [(1, 1), (2, 2 + 4), (3, 4 + 4)])
def test_figure_three_of_other_spaces(d, n_panels):
    assert len(figures.figure_three([run(d=d, setting=None)]).axes) == n_panels


def test_runs_of_one_strategy_that_differ_in_seeds_only_are_all_shown():
    figure = figures.figure_three([run(seed=0), run(seed=1)])
    assert len(figure.axes) == 4 + 2 * 4
    assert len(figures.figure_two({"maze-plane": [run(seed=0), run(seed=1)]}).axes[0].get_lines()) == 2


def test_smoothing_against_loops():
    x = np.random.default_rng(0).random((3, 9))
    for n in (1, 2, 4, 20):
        expected = [[row[max(0, e - n + 1) : e + 1].mean() for e in range(9)] for row in x]
        np.testing.assert_allclose(curves.trailing_mean(x, n), expected)
    np.testing.assert_allclose(curricula.smoothed(x)[:, 4], x[:, 2:7].mean(axis=1))
    x[0, 3] = x[1, 2:7] = np.nan
    np.testing.assert_allclose(curricula.smoothed(x)[0, 4], np.nanmean(x[0, 2:7]))
    assert np.isnan(curricula.smoothed(x)[1]).tolist() == [False] * 4 + [True] + [False] * 4
    assert curricula.smoothed(x[:, :1]).shape == (3, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.figure_two({}), "no runs: expected at least one per setting"),
        (lambda: figures.figure_two({"maze-plane": [run()], "minigrid": []}), "no runs of minigrid"),
        (lambda: figures.performance_profiles({}), "no runs"),
        (lambda: figures.figure_three([]), "no runs"),
        (lambda: figures.figure_three([run(), run(setting="maze-1t")]), "runs of maze-1t, maze-plane in one figure"),
        (lambda: figures.figure_two({"maze-plane": [run()]}, smooth=0), "smooth = 0"),
    ],
)
def test_errors_say_what_is_missing(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_everything_is_written_where_it_applies(tmp_path, monkeypatch):
    minigrid = run_of(np.full((2, 3, 4), CROSSING))
    single = run("IID", setting="maze-1t", ret=[np.zeros(len(STEPS))], d=1)  # few panels: each takes its time
    minigrid.config["space"] = {"value_range": [0.0, 1.0]}
    cut = run("PLR", d=1)
    cut.trace.clear()  # at its first evaluation
    results = [run("IID", d=1), cut, single, minigrid]
    plain = {
        "maze-plane-curves.png", "maze-plane-curriculum.png", "maze-plane-distance.png", "maze-1t-curves.png",
        "maze-1t-curriculum.png", "maze-1t-distance.png", "minigrid-curves.png", "minigrid-curriculum.png",
    }  # fmt: skip
    figures.save_all([minigrid], tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"minigrid-curves.png", "minigrid-curriculum.png"}
    written = figures.save_all(results, tmp_path, published=True)
    stems = ("figure-2", "profiles", "maze-plane-figure-3", "maze-1t-figure-3")
    assert {p.name for p in written} == plain | {f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf")}
    assert all(p.stat().st_size > 1000 for p in written)
    monkeypatch.setattr(figures, "save", lambda figure, *paths, **_: list(paths))  # the names will do
    assert "profiles.png" not in {p.name for p in figures.save_published([single], tmp_path)}


def test_a_pdf_has_its_fonts_inside_and_no_date(tmp_path):
    for name in ("a.pdf", "b.pdf"):
        figures.save(figures.figure_two({"maze-plane": [run()]}), tmp_path / name)
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf  # TrueType, which publishers take
    assert pdf == (tmp_path / "b.pdf").read_bytes()
    assert figures.plt.rcParams["font.size"] == figures.plt.rcParamsDefault["font.size"], "nobody else's figures change"
    assert figures.plt.get_fignums() == []
