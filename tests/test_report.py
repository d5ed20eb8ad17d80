"""`procurl report`: what is gathered, the tables, and the page in a real browser (marker `browser`)."""

import csv
import dataclasses
import hashlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from worlds import run

from procurl import cli
from procurl.bench import report
from procurl.bench.report import markdown, page_data
from procurl.bench.report.studies import collect
from procurl.bench.stats import bootstrap_interval, mean_and_error, summarise
from procurl.errors import ConfigError, RunFolderError
from procurl.runs.store.result import load_result

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "src/procurl/bench/report/assets"
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!--"


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


made_up_run = script(ROOT / "benchmarks/report_size.py").made_up_run


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Two settings, three strategies (one of them twice, with other options), one folder per seed; some are missing."""
    home = tmp_path_factory.mktemp("grid")
    for setting in ("alpha", HOSTILE):
        folder = home / ("alpha" if setting == "alpha" else "hostile")
        for seed in range(4):
            made_up_run(setting, "IID", [seed]).save(folder / f"iid-{seed}")
            made_up_run(setting, "CURROT", [seed], epsilon=1.5).save(folder / f"currot-{seed}")
        if setting == "alpha":
            for seed in range(3):
                made_up_run(setting, "CURROT", [seed], epsilon=0.2).save(folder / f"currot-small-{seed}")
            cut = made_up_run(setting, "SPDL", [1], evaluations=3, status="interrupted")
            cut.save(folder / "spdl-cut")
            made_up_run(setting, "SPDL", [0, 2, 3]).save(folder / "spdl")
    return home


@pytest.fixture(scope="module")
def collection(grid):
    return collect([grid])


@pytest.fixture(scope="module")
def data(collection):
    return page_data.page_data(collection)


def by_label(study):
    return {strategy.label: strategy for strategy in study.strategies}


# ---------------------------------------------------------------- gathering


def test_runs_that_differ_in_their_seeds_are_one_strategy(collection):
    hostile, alpha = collection.studies
    assert (alpha.title, hostile.title) == ("alpha", HOSTILE)
    assert set(by_label(alpha)) == {"IID", "CURROT (epsilon=1.5)", "CURROT (epsilon=0.2)", "SPDL"}
    iid = by_label(alpha)["IID"]
    np.testing.assert_array_equal(iid.seeds, range(4))
    expected = np.concatenate([made_up_run("alpha", "IID", [seed]).ret for seed in range(4)])
    np.testing.assert_allclose(iid.ret, expected)
    np.testing.assert_allclose(iid.final, expected[:, -1])
    tasks = np.concatenate([made_up_run("alpha", "IID", [s]).task_success[:, -1] for s in range(4)]).mean(axis=0)
    np.testing.assert_allclose(iid.task_success, tasks, rtol=1e-6)


def test_what_is_missing_is_named(collection):
    _, alpha = collection.studies
    assert any("CURROT (epsilon=0.2): no run of seed 3" in note for note in alpha.notes)
    spdl = by_label(alpha)["SPDL"]
    assert spdl.notes == [
        "seed 1: cut short after 51,200 of 102,400 planned steps (interrupted); left out of the statistics"
    ]
    np.testing.assert_array_equal(spdl.complete, [True, False, True, True])
    assert np.isnan(spdl.final[1]) and np.isfinite(spdl.final[[0, 2, 3]]).all()
    assert any("no run of SPDL" in problem for problem in collection.problems)


def test_a_nan_is_counted_and_never_averaged(tmp_path):
    broken = made_up_run("alpha", "IID", [0, 1, 2])
    broken.task_ret[1, 2] = np.nan
    broken.save(tmp_path / "run")
    study = collect([tmp_path]).studies[0]
    strategy = study.strategies[0]
    summary = page_data.summary_of(strategy, 0.5)
    assert (summary.n_seeds, summary.n_failed) == (3, 1)
    assert summary.mean == pytest.approx(strategy.ret[[0, 2], -1].mean())
    assert "| 2 (1 failed)" in markdown.tables(collect([tmp_path]))
    assert "seed 1: not evaluated to the end or not finite" in markdown.tables(collect([tmp_path]))


@pytest.fixture(scope="module")
def cut_grid(tmp_path_factory):
    """IID ended; of SPDL some seeds did; CURROT, the best of all so far, was cut as a whole."""
    home = tmp_path_factory.mktemp("cut")
    made_up_run("alpha", "IID", [0, 1]).save(home / "iid")
    made_up_run("alpha", "SPDL", [0, 1]).save(home / "spdl")
    made_up_run("alpha", "SPDL", [1, 2], evaluations=2, status="interrupted").save(home / "again")
    cut = made_up_run("alpha", "CURROT", [0, 1], evaluations=3, status="interrupted")
    cut.task_ret[:, -1] = 1.0
    cut.save(home / "currot")
    return home


def test_a_run_that_was_cut_is_told_on_the_command_line(cut_grid, tmp_path, capsys):
    assert cli.main(["report", str(cut_grid), "-o", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().err
    assert "procurl: currot: cut short (interrupted) after 51,200 of 102,400 steps: it is in no statistics" in said
    assert "procurl: again: cut short (interrupted) after" in said and "`procurl resume` goes on with it" in said
    assert "iid:" not in said and said.count("cut short") == 2


def test_a_run_that_was_cut_is_never_ranked(cut_grid):
    collection = collect([cut_grid])
    assert (collection.n_runs, collection.n_cut) == (4, 2)
    strategies = by_label(collection.studies[0])
    currot, spdl = strategies["CURROT"], strategies["SPDL"]
    assert currot.is_unfinished and not spdl.is_unfinished and not strategies["IID"].is_unfinished
    assert np.isnan(currot.final).all() and not currot.complete.any() and currot.task_ret is None
    assert np.isnan(page_data.summary_of(currot, 0.5).mean), "its 1.0 is one of another number of steps"
    rows = [line for line in markdown.tables(collection).splitlines() if line.startswith("| ")]
    assert rows[-1].startswith("| CURROT") and "0 (2 cut short)" in rows[-1] and "of 102,400" in rows[-1]
    assert "1.000" not in rows[-1]
    (study,) = page_data.page_data(collection)["studies"]
    labels = [s["label"] for s in study["strategies"]]
    compared = {labels[k] for pair in study["pairs"] for k in pair[:2]}
    assert compared == {"IID", "SPDL"}
    shown = study["strategies"][labels.index("CURROT")]
    assert shown["summary"]["mean"] is None and shown["success"] is None and shown["profile"] is None
    assert shown["curves"][0]["mean"][-1] == 1.0, "its curve is drawn as far as it came"
    assert (shown["cut"], shown["unfinished"], shown["planned"]) == (2, True, 102_400)


def test_seeds_that_were_cut_are_not_counted_as_failed(cut_grid):
    """Seed 1 of SPDL is there twice, and the run that ended counts; seed 2 was cut alone."""
    spdl = by_label(collect([cut_grid]).studies[0])["SPDL"]
    np.testing.assert_array_equal(spdl.cut, [False, False, True])
    summary = page_data.summary_of(spdl, 0.5)
    assert (summary.n_seeds, summary.n_failed) == (2, 0)
    assert summary.mean == pytest.approx(made_up_run("alpha", "SPDL", [0, 1]).ret[:, -1].mean())
    assert any(note.startswith("seed 2: cut short after") for note in spdl.notes)
    assert any("seed 1 is in spdl and again in again: the first is used" in note for note in spdl.notes)


def test_runs_that_were_all_cut_at_the_same_step_are_compared_there(tmp_path):
    for teacher in ("IID", "CURROT"):
        made_up_run("alpha", teacher, [0, 1], evaluations=3, status="interrupted").save(tmp_path / teacher)
    collection = collect([tmp_path])
    (study,) = collection.studies
    assert study.notes[0] == "all runs were cut short, and are compared after 51,200 steps"
    assert all(s.complete.all() and s.is_unfinished for s in study.strategies)
    assert any(
        "IID: cut short (interrupted) after 51,200 of 102,400 steps: compared there" in p for p in collection.problems
    )
    assert markdown.tables(collection).count("51,200 of 102,400 ") >= 2
    made_up_run("alpha", "SPDL", [0, 1]).save(tmp_path / "spdl")  # one that ended: now the others are left out
    assert [s.label for s in collect([tmp_path]).studies[0].strategies if s.complete.any()] == ["SPDL"]


def test_a_loop_of_ones_own_has_no_plan_that_it_could_fall_short_of(tmp_path):
    run_ = made_up_run("alpha", "IID", [0], evaluations=3, status="finished")
    config = {**run_.config, "config": {"loop": {"n_steps": 5120}}}
    dataclasses.replace(run_, config=config).save(tmp_path / "loop")
    collection = collect([tmp_path])
    assert collection.n_cut == 0 and collection.studies[0].strategies[0].complete.all()


def test_every_seed_may_have_failed(tmp_path):
    broken = made_up_run("alpha", "IID", [0, 1])
    broken.task_ret[:] = np.nan
    broken.save(tmp_path / "run")
    collection = collect([tmp_path])
    strategy = page_data.page_data(collection)["studies"][0]["strategies"][0]
    assert strategy["summary"]["mean"] is None and strategy["curves"][0]["mean"] is None
    assert "| 0 (2 failed)" in markdown.tables(collection)


def test_the_same_seed_twice_counts_once(tmp_path):
    for name in ("first", "second"):
        made_up_run("alpha", "IID", [5]).save(tmp_path / name)
    strategy = collect([tmp_path]).studies[0].strategies[0]
    np.testing.assert_array_equal(strategy.seeds, [5])
    assert strategy.notes == ["seed 5 is in first and again in second: the first is used"]
    assert len(collect([tmp_path, tmp_path / "first"]).studies[0].strategies[0].notes) == 1  # given twice, there once


def test_a_damaged_or_unfinished_run_does_not_stop_the_report(tmp_path):
    for seed in range(2):
        made_up_run("alpha", "IID", [seed]).save(tmp_path / f"run-{seed}")
    path = tmp_path / "run-1" / "evaluations.npz"
    path.write_bytes(path.read_bytes()[:-7])
    (tmp_path / "half" / "checkpoints" / "10").mkdir(parents=True)
    (tmp_path / "half" / "checkpoints" / "10" / "manifest.json").write_text("{}")
    collection = collect([tmp_path])
    assert collection.n_runs == 1
    assert any(p.startswith("run-1:") and "damaged" in p for p in collection.problems)
    assert any(p.startswith("half: unfinished") for p in collection.problems)


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="nothing to report: no finished run"):
        collect([tmp_path])
    with pytest.raises(ConfigError, match="is not there"):
        collect([tmp_path / "absent"])
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="nothing to report"):
        collect([tmp_path / "other.json"])
    (tmp_path / "other.json").write_text("{")
    with pytest.raises(RunFolderError, match="cannot be read"):
        collect([tmp_path])


def test_two_settings_of_one_name_are_kept_apart(tmp_path):
    made_up_run("alpha", "IID", [0]).save(tmp_path / "a")
    other = made_up_run("alpha", "IID", [0])
    other.config["space"]["sha256"] = "f00f00f00"
    other.save(tmp_path / "b")
    assert [s.title for s in collect([tmp_path]).studies] == ["alpha (tasks alpha)", "alpha (tasks f00f00)"]


def test_a_run_of_the_real_loop(tmp_path):
    result = run(seeds=[3, 5])
    result.save(tmp_path / "run")
    study = page_data.page_data(collect([tmp_path]))["studies"][0]
    strategy = study["strategies"][0]
    assert study["setting"] == "point-mass-2g" and strategy["label"] == "ProCuRL-Target"
    assert strategy["steps"] == result.steps.tolist() and strategy["seeds"] == [3, 5]
    np.testing.assert_allclose(strategy["ret"], result.ret, atol=5e-5)
    began = np.isfinite(result.trace["task_context"][..., 0])
    assert sum(strategy["curriculum"]["counts"]) == began.sum()
    assert strategy["config"]["teacher"]["beta"] == 130.0


# ---------------------------------------------------------------- the page's data


def test_statistics_are_those_of_the_package(collection, data):
    strategy = by_label(collection.studies[1])["SPDL"]
    entry = next(s for s in data["studies"][1]["strategies"] if s["label"] == "SPDL")
    sound = strategy.ret[[0, 2, 3]]
    mean, error = mean_and_error(sound)
    low, high = bootstrap_interval(sound, repeats=2000)
    for name, expected in (("mean", mean), ("error", error), ("low", low), ("high", high)):
        np.testing.assert_allclose(entry["curves"][0][name], expected, atol=5.1e-5)
    summary = summarise(strategy.steps, strategy.ret, threshold=0.5)
    assert entry["summary"]["iqm"] == pytest.approx(summary.iqm, abs=1e-5)
    assert (entry["summary"]["n_seeds"], entry["summary"]["n_failed"], entry["cut"]) == (3, 0, 1)
    assert entry["ret"][1][3:] == [None] * (len(strategy.steps) - 3)


def test_smoothing_averages_each_seed_first(collection, data):
    ret = by_label(collection.studies[1])["IID"].ret
    entry = next(s for s in data["studies"][1]["strategies"] if s["label"] == "IID")
    window = page_data.WINDOWS.index(3)
    n = ret.shape[1]
    slow = np.stack([ret[:, max(k - 1, 0) : min(k + 2, n)].mean(axis=1) for k in range(n)], axis=1)
    np.testing.assert_allclose(entry["curves"][window]["mean"], slow.mean(axis=0), atol=5.1e-5)
    np.testing.assert_allclose(entry["curves"][window]["error"], slow.std(axis=0, ddof=1) / 2, atol=5.1e-5)


def test_frames_hold_the_tasks_of_their_iterations(collection, data):
    strategy, entry = by_label(collection.studies[1])["IID"], data["studies"][1]["strategies"][2]
    assert entry["label"] == "IID"
    edges, space = np.array(data["studies"][1]["edges"]), data["studies"][1]["space"]
    low, high = np.array(space["low"]), np.array(space["high"])
    assert edges[0] == 0 and edges[-1] == strategy.steps[-1]
    when = strategy.iterations * strategy.iteration_steps
    for f, flat in enumerate(entry["curriculum"]["points"]):
        there = strategy.contexts[(when >= edges[f]) & (when < edges[f + 1])]
        assert entry["curriculum"]["counts"][f] == len(there)
        points = low + np.array(flat).reshape(-1, 3) / page_data.GRID * (high - low)
        assert 0 < len(points) <= data["limits"]["points"]
        gap = np.abs(points[:, None] - there[None]).max(axis=2).min(axis=1)
        assert (gap <= 0.51 * (high - low).max() / page_data.GRID).all()


def test_shares_of_minigrid_s_families(tmp_path):
    from procurl.bench.report.style import FAMILY_COLOURS
    from procurl.envs.minigrid.families import BITS, BLOCKED, CROSSING

    result = made_up_run("minigrid", "IID", [0], low=np.zeros(8), high=np.ones(8), names=tuple("abcdefgh"))
    context = result.trace["task_context"]  # f32[1, 20, 16, 8]
    context[:] = BITS[CROSSING]
    context[:, 10:, :4] = BITS[BLOCKED]
    context[:, 15, 8:] = np.nan  # episodes that never began
    result.save(tmp_path / "run")
    study = page_data.page_data(collect([tmp_path]))["studies"][0]
    shares = np.array(study["strategies"][0]["curriculum"]["families"])
    blocked = list(FAMILY_COLOURS).index("blocked-unlock-pickup")
    np.testing.assert_allclose(shares[:, blocked], [0.0] * 10 + [0.25] * 5 + [0.5] + [0.25] * 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def levels(teacher, names=("5x5", "6x6", "8x8")):
    """A run over tasks that are names; the last is the target."""
    result = made_up_run("doors", teacher, [0, 1], low=np.zeros(1), high=np.array([len(names) - 1.0]), names=("task",))
    result.config["space"]["labels"] = list(names)
    for contexts in (result.trace["task_context"], result.held_out["context"]):
        contexts[:] = contexts.round()
    result.held_out["context"][:] = len(names) - 1
    return result


def test_shares_of_tasks_that_are_names(tmp_path):
    result = levels("IID")
    context = result.trace["task_context"]
    context[:], context[:, 10:, :4] = 0.0, 2.0
    result.save(tmp_path / "run")
    study = page_data.page_data(collect([tmp_path]))["studies"][0]
    shares = np.array(study["strategies"][0]["curriculum"]["families"])
    np.testing.assert_allclose(shares, [[1.0, 0.0, 0.0]] * 10 + [[0.75, 0.0, 0.25]] * 10)
    assert study["families"]["names"] == study["space"]["labels"] == ["5x5", "6x6", "8x8"]
    assert study["families"]["targets"] == [False, False, True] and len(set(study["families"]["colours"])) == 3


def test_labels_of_a_stranger_are_checked(tmp_path):
    for labels in ("5x5", [], [5]):
        result = levels("IID")
        result.config["space"]["labels"] = labels
        result.save(tmp_path / "run")
        with pytest.raises(RunFolderError, match=r"space\.labels|labels"):
            load_result(tmp_path / "run")
        shutil.rmtree(tmp_path / "run")


def test_a_difference_and_its_probability(data):
    study = data["studies"][1]
    labels = [s["label"] for s in study["strategies"]]
    assert len(study["pairs"]) == len(labels) * (len(labels) - 1) // 2
    for i, j, difference, low, high, better in study["pairs"]:
        means = [study["strategies"][k]["summary"]["mean"] for k in (i, j)]
        assert difference == pytest.approx(means[0] - means[1], abs=2e-4)
        assert low <= difference <= high and 0 <= better <= 1


def test_large_collections_are_thinned(tmp_path, monkeypatch):
    for teacher in ("IID", "PLR"):
        made_up_run("alpha", teacher, list(range(6)), iterations=60).save(tmp_path / teacher)
    monkeypatch.setattr(page_data, "POINTS", 2 * 40 * 20)
    monkeypatch.setattr(page_data, "EVALUATIONS", 5)
    monkeypatch.setattr(page_data, "SEED_NUMBERS", 30)
    thin = page_data.page_data(collect([tmp_path]))
    assert thin["limits"] == {"points": 20, "seeds": 3, "evaluations": 5, "grid": 1000}
    strategy = thin["studies"][0]["strategies"][0]
    assert strategy["steps"][0] == 0 and strategy["steps"][-1] == 60 * 5120 and len(strategy["steps"]) == 5
    assert np.shape(strategy["ret"]) == (3, 5) and len(strategy["seeds"]) == 6
    assert {len(flat) for flat in strategy["curriculum"]["points"]} == {20 * 3}
    assert strategy["summary"]["n_seeds"] == 6  # statistics are of all of them


def test_a_page_is_one_safe_file(collection):
    text = report.page(collection)
    assert text == report.page(collection)  # the same runs, the same page
    assert text.count("</script>") == 3 and HOSTILE not in text and "<img" not in text
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert not set("<>&") & set(embedded)
    assert json.loads(embedded)["studies"][0]["title"] == HOSTILE
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text.split("<main>")[0] + text.split("</main>")[1][:200])
    assert "sourceMappingURL" not in text and "{{" not in text.split("<script")[0]


def test_the_charting_library_is_unmodified():
    noted = re.search(r"`([0-9a-f]{64})`", (PAGE / "README.md").read_text())[1]
    assert hashlib.sha256((PAGE / "chart.umd.min.js").read_bytes()).hexdigest() == noted
    version = re.search(r"Chart.js v([0-9.]+)", (PAGE / "chart.umd.min.js").read_text())[1]
    assert f"| version | {version}," in (PAGE / "README.md").read_text()
    assert "MIT" in (PAGE / "chart.js-LICENSE.md").read_text()


# ---------------------------------------------------------------- recorded results, tables, the command


def test_the_recorded_results_in_markdown_are_up_to_date():
    """benchmarks/RESULTS.md is what `procurl report benchmarks/results --markdown benchmarks/RESULTS.md` writes."""
    assert (ROOT / "benchmarks/RESULTS.md").read_text() == markdown.tables(collect([ROOT / "benchmarks/results"]))


def test_recorded_results_keep_their_numbers():
    collection = collect([ROOT / "benchmarks/results/paper-maze-plane.json"])
    file = json.loads((ROOT / "benchmarks/results/paper-maze-plane.json").read_text())
    strategies = by_label(collection.studies[0])
    assert len(strategies) == len(file["teachers"])
    row = file["teachers"]["procurl-target:release"]
    summary = page_data.summary_of(strategies["ProCuRL-Target (release)"], 0.5)
    assert (summary.mean, summary.error) == (row["mean"][-1], row["standard_error"][-1])
    assert (summary.area, summary.area_error) == tuple(row["area"]) and summary.n_seeds == file["seeds"]
    text = markdown.tables(collection)
    assert file["provenance"]["commit"] in text and "NVIDIA H200" in text and file["date"] in text


def test_the_curriculum_of_a_recorded_result(tmp_path):
    file = json.loads((ROOT / "benchmarks/results/paper-maze-plane.json").read_text())
    file["teachers"] = {"iid": file["teachers"]["iid"]}
    (tmp_path / "a-maze-plane.json").write_text(json.dumps(file))
    context = np.full((2, 10, 4, 3), 0.5, np.float16)
    context[0, 3, 2] = np.nan
    distance = np.ones((2, 10, 3), np.float16)
    distance[1, 4] = np.nan
    held_out = np.zeros((5, 3), np.float16)
    np.savez(tmp_path / "a-maze-plane.npz", **{"iid/context": context, "iid/distance": distance, "held_out": held_out})
    strategy = collect([tmp_path]).studies[0].strategies[0]
    assert strategy.contexts.shape == (79, 3) and np.bincount(strategy.iterations)[3] == 7
    np.testing.assert_array_equal(strategy.distance, np.ones((10, 3)))
    entry = page_data.page_data(collect([tmp_path]))["studies"][0]["strategies"][0]
    assert sum(entry["curriculum"]["counts"]) == 79 and entry["curves"][0]["low"] is None


def test_a_recorded_file_that_contradicts_itself(tmp_path):
    file = json.loads((ROOT / "benchmarks/results/paper-maze-plane.json").read_text())
    file["steps"] = file["steps"][:-1]
    (tmp_path / "a.json").write_text(json.dumps(file))
    with pytest.raises(RunFolderError, match="41 means at 40 evaluations"):
        collect([tmp_path])


def test_names_cannot_break_a_table(collection):
    text = markdown.tables(collection)
    assert "<img" not in text.replace("\\<img", "")
    assert all(line.count(" | ") == 8 for line in text.splitlines() if line.startswith("| "))


def test_the_command(grid, tmp_path, capsys):
    page, table = tmp_path / "new" / "report.html", tmp_path / "R.md"
    assert cli.main(["report", str(grid / "alpha"), "-o", str(page), "--markdown", str(table)]) == 0
    assert page.read_text().startswith("<!DOCTYPE html>") and table.read_text().startswith("# Results")
    assert str(page) in capsys.readouterr().out
    assert sorted(p.name for p in page.parent.iterdir()) == ["report.html"]
    assert cli.main(["report", str(tmp_path / "absent")]) == 1
    assert "is not there" in capsys.readouterr().err
    assert cli.main(["report", str(grid / "alpha"), "-o", str(tmp_path)]) == 1
    assert "could not write" in capsys.readouterr().err


def test_a_report_does_not_touch_the_runs(grid):
    before = {p: p.stat().st_mtime_ns for p in grid.rglob("*")}
    report.page(collect([grid]))
    assert before == {p: p.stat().st_mtime_ns for p in grid.rglob("*")}


def test_the_size_script(tmp_path):
    small = ["--settings", "1", "--strategies", "2", "--seeds", "2", "--iterations", "20"]
    command = [sys.executable, str(ROOT / "benchmarks/report_size.py"), *small]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "4 run folders: read in" in done.stdout and re.search(r"page: 0\.\d+ MB", done.stdout)


@pytest.mark.slow
def test_a_thousand_cells_make_a_small_page(tmp_path):
    teachers = script(ROOT / "benchmarks/report_size.py").TEACHERS
    for k in range(5):
        for teacher in teachers:
            made_up_run(f"setting-{k}", teacher, list(range(25)), iterations=390).save(tmp_path / f"{k}-{teacher}")
    assert len(report.page(collect([tmp_path])).encode()) < 10e6


# ---------------------------------------------------------------- the page in a browser


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    path = script(ROOT / "tools/chromium.py").find()
    assert path, "no Chromium: `make test-browser` installs one"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report_file(collection, tmp_path_factory):
    return report.write(tmp_path_factory.mktemp("page") / "report.html", report.page(collection))


@pytest.fixture
def opened(browser, report_file):
    """Opens the page; at the end, nothing may have gone wrong and nothing may have left it."""
    contexts, complaints, requests = [], [], []

    def open_page(file=report_file, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        contexts.append(context)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        page.select_option("#setting", label="alpha") if file == report_file else None
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert requests and all(url.startswith(("file:", "blob:", "data:")) for url in requests)
    assert sum(url.startswith("file:") for url in requests) == len(contexts)  # the page itself, and no file beside it


# Of a copy: a canvas that is read again and again draws a warning from the browser.
PIXELS = """
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
            copy.drawImage(canvas, 0, 0);
            const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
"""


def ink(page, selector):
    """How many pixels of a canvas are drawn on, and a hash of the picture."""
    return page.eval_on_selector(
        selector,
        "canvas => {"
        + PIXELS
        + """
            let drawn = 0, sum = 0;
            for (let k = 0; k < data.length; k += 4) {
                if (data[k + 3]) drawn++;
                sum = (sum * 31 + data[k] + 7 * data[k + 1] + 13 * data[k + 2] + 17 * data[k + 3]) % 1000000007;
            }
            return [drawn, sum];
        }""",
    )


def has_colour(page, selector, colour):
    """Whether a canvas has pixels of this very colour."""
    rgb = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return page.eval_on_selector(
        selector,
        "(canvas, rgb) => {"
        + PIXELS
        + """
            for (let k = 0; k < data.length; k += 4)
                if (data[k + 3] === 255 && rgb.every((value, c) => data[k + c] === value)) return true;
            return false;
        }""",
        rgb,
    )


SPDL, IID, CURROT = "#CC79A7", "#000000", "#0072B2"


@pytest.mark.browser
def test_curves_are_drawn_and_strategies_toggle(opened):
    page = opened()
    assert ink(page, "#curve-chart")[0] > 3000
    assert all(has_colour(page, "#curve-chart", c) for c in (SPDL, IID, CURROT))
    panels = page.locator("#taught-panels canvas")
    assert panels.count() == 4
    page.get_by_role("checkbox", name="SPDL").uncheck()
    assert not has_colour(page, "#curve-chart", SPDL) and has_colour(page, "#curve-chart", IID)
    assert panels.count() == 3
    page.get_by_role("button", name="none", exact=True).click()
    assert not has_colour(page, "#curve-chart", IID) and panels.count() == 0
    page.get_by_role("button", name="all", exact=True).click()
    assert has_colour(page, "#curve-chart", SPDL) and panels.count() == 4


@pytest.mark.browser
def test_intervals_and_smoothing_change_the_picture(opened):
    page = opened()
    pictures = [ink(page, "#curve-chart")]
    for select, value in (("#band", "ci"), ("#band", "seeds"), ("#band", "none"), ("#window", "2")):
        page.select_option(select, value)
        pictures.append(ink(page, "#curve-chart"))
    assert len({picture for _, picture in pictures}) == len(pictures)
    assert pictures[3][0] < min(pictures[0][0], pictures[1][0])  # no band, less ink


@pytest.mark.browser
def test_the_slider_moves_the_points(opened, data):
    page = opened()
    first = page.locator("#taught-panels canvas").first
    before = ink(page, "#taught-panels canvas")[1]
    assert "Steps 0 to 5,120" in page.locator("#frame-text").inner_text()
    page.locator("#frame").focus()
    page.keyboard.press("End")
    assert ink(page, "#taught-panels canvas")[1] != before
    assert "to 102,400" in page.locator("#frame-text").inner_text()
    assert page.locator("#frame").get_attribute("aria-valuetext") == "steps 97,280 to 102,400"
    assert "97,280 to 102,400" in first.get_attribute("aria-label")
    page.keyboard.press("ArrowLeft")
    assert "moment 19 of 20" in page.locator("#frame-text").inner_text()
    page.keyboard.press("Home")
    assert ink(page, "#taught-panels canvas")[1] == before
    shown = page.locator("#taught-panels figure p").first.inner_text()
    counts = data["studies"][1]["strategies"][0]["curriculum"]["counts"]
    assert re.match(rf"{counts[0]} of {counts[0]} tasks", shown)


@pytest.mark.browser
def test_play_moves_the_slider_unless_motion_is_unwanted(opened):
    from playwright.sync_api import expect

    page = opened()
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#frame-text")).to_contain_text(re.compile(r"moment ([3-9]|1\d|20) of"))
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Play").is_visible()
    assert not opened(reduced_motion="reduce").locator("#play").is_visible()


@pytest.mark.browser
def test_dimensions_are_chosen_and_change_places(opened):
    page = opened()
    before = ink(page, "#taught-panels canvas")[1], ink(page, "#learnt-panels canvas")[1]
    page.select_option("#dim-x", label="friction")
    assert page.locator("#dim-y").evaluate("s => s.selectedOptions[0].text") == "gate width"
    page.select_option("#dim-x", label="gate width")
    assert page.locator("#dim-y").evaluate("s => s.selectedOptions[0].text") == "friction"
    after = ink(page, "#taught-panels canvas")[1], ink(page, "#learnt-panels canvas")[1]
    assert before[0] != after[0] and before[1] != after[1]


@pytest.mark.browser
def test_settings_switch_and_hostile_names_stay_text(opened):
    page = opened()
    assert page.locator("#strategies label").count() == 4
    page.select_option("#setting", label=HOSTILE)
    assert page.locator("#strategies label").all_inner_texts() == ["CURROT", "IID"]
    assert page.title() == "procurl report" and page.locator("img").count() == 0
    assert HOSTILE in page.locator("#curve-chart").get_attribute("aria-label")
    page.locator("#problems summary").click()
    assert f"{HOSTILE}: no run of SPDL" in page.locator("#problems").inner_text()


@pytest.mark.browser
def test_the_table_has_the_statistics_and_sorts_by_keyboard(opened, data):
    page = opened()
    strategies = data["studies"][1]["strategies"]

    def order():
        return [text.strip() for text in page.locator("#statistics-table tbody th").all_inner_texts()]

    by_mean = [s["label"] for s in sorted(strategies, key=lambda s: -s["summary"]["mean"])]
    assert order() == by_mean
    best = max(strategies, key=lambda s: s["summary"]["mean"])
    text = page.locator("#statistics-table tbody tr").first.inner_text()
    assert f"{best['summary']['mean']:.3f} ± {best['summary']['error']:.3f}" in text
    assert "1 cut short" in page.locator("#statistics-table tr", has_text="SPDL").inner_text()
    button = page.get_by_role("button", name="Final return")
    button.focus()
    page.keyboard.press("Enter")
    assert order() == by_mean[::-1]
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert page.evaluate("document.activeElement.dataset.sort") == "mean"  # the focus stays
    page.select_option("#reference", label="SPDL")
    i, j = (next(k for k, s in enumerate(strategies) if s["label"] == name) for name in ("IID", "SPDL"))
    difference = next(p[2] for p in data["studies"][1]["pairs"] if {p[0], p[1]} == {i, j}) * (1 if i < j else -1)
    assert f"{difference:+.3f}" in page.locator("#statistics-table tr", has_text="IID").inner_text()


@pytest.mark.browser
def test_everything_is_reachable_by_keyboard(opened):
    page = opened()
    seen = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    for name in (
        "theme",
        "setting",
        "all",
        "band",
        "window",
        "curve-chart",
        "reference",
        "dim-x",
        "frame",
        "metric",
        "save-json",
    ):
        assert name in seen, name
    page.locator("#curve-chart").focus()
    page.keyboard.press("End")
    live = page.locator("#curve-live").inner_text()
    assert live.startswith("102,400 steps:") and "IID" in live and "±" in live
    page.keyboard.press("Home")
    assert page.locator("#curve-live").inner_text().startswith("0 steps:")
    outline = page.locator("#curve-chart").evaluate("c => getComputedStyle(c).outlineStyle")
    assert outline == "solid"


@pytest.mark.browser
def test_charts_and_controls_have_names_and_tables(opened):
    page = opened()
    assert page.locator("canvas[role=img]:not([aria-label])").count() == 0
    unnamed = page.evaluate("[...document.querySelectorAll('select, input')].filter(e => !e.labels.length).length")
    assert unnamed == 0
    for name in ("curve", "profile", "taught", "learnt"):
        page.locator(f"#{name}-table summary").click()
        page.wait_for_selector(f"#{name}-table tbody tr")
    rows = page.locator("#curve-table tbody tr")
    assert rows.count() == 5 and "±" in rows.last.inner_text()
    assert page.locator("#taught-table tbody tr").count() == 4
    page.get_by_role("checkbox", name="SPDL").uncheck()
    assert page.locator("#taught-table tbody tr").count() == 3


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_scrolls_in_one_direction(opened, width):
    page = opened(viewport={"width": width, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True)
    for label in ("alpha", HOSTILE):
        page.select_option("#setting", label=label)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert ink(page, "#curve-chart")[0] > 3000
    page.get_by_role("checkbox", name="IID").tap()
    assert not page.get_by_role("checkbox", name="IID").is_checked()


@pytest.mark.browser
def test_light_and_dark(opened):
    def background(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = opened(), opened(color_scheme="dark")
    assert background(light) == "rgb(245, 246, 248)" and background(dark) == "rgb(15, 19, 24)"
    assert has_colour(light, "#curve-chart", IID)
    assert not has_colour(dark, "#curve-chart", IID) and has_colour(dark, "#curve-chart", "#f4f4f4")  # black on black
    light.get_by_role("button", name="Dark").click()
    assert background(light) == background(dark)
    assert light.locator("#theme").get_attribute("aria-pressed") == "true"


@pytest.mark.browser
def test_downloads_hold_the_data(opened, data):
    page = opened()
    files = {}
    for button in ("curves", "seeds", "statistics", "json"):
        with page.expect_download() as download:
            page.locator(f"#save-{button}").click()
        files[button] = Path(download.value.path()).read_text()
    assert json.loads(files["json"]) == json.loads(json.dumps(data))
    curves = list(csv.DictReader(io.StringIO(files["curves"])))
    assert len(curves) == sum(len(s["steps"]) for study in data["studies"] for s in study["strategies"])
    iid = next(s for s in data["studies"][1]["strategies"] if s["label"] == "IID")
    rows = [row for row in curves if (row["setting"], row["strategy"]) == ("alpha", "IID")]
    assert [float(row["mean"]) for row in rows] == iid["curves"][0]["mean"]
    assert {row["setting"] for row in curves} == {"alpha", HOSTILE}
    assert len(list(csv.DictReader(io.StringIO(files["statistics"])))) == 6
    seeds = list(csv.DictReader(io.StringIO(files["seeds"])))
    assert {row["seed"] for row in seeds} == {"0", "1", "2", "3"}


@pytest.mark.browser
def test_the_browser_itself_forbids_the_network(browser, report_file):
    context = browser.new_context()
    page = context.new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report_file.as_uri())
    outcome = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
    violated = page.evaluate(
        """new Promise(done => {
            document.addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
            if (document.title === "owned") done("it ran");
        })"""
    )
    assert outcome == "refused" and violated.startswith("script-src") and page.title() == "procurl report"
    assert not any(url.startswith("http") for url in requests)
    context.close()


@pytest.mark.browser
def test_minigrid_and_recorded_results_draw_too(opened, tmp_path):
    from procurl.envs.minigrid.families import BITS

    for teacher in ("IID", "CURROT"):
        run_ = made_up_run("minigrid", teacher, [0, 1], low=np.zeros(8), high=np.ones(8), names=tuple("abcdefgh"))
        run_.trace["task_context"][:] = BITS[np.arange(20) * 6 // 20][None, :, None]
        run_.save(tmp_path / teacher)
    made_up_run("line", "IID", [0], low=np.zeros(1), high=np.ones(1), names=("length",)).save(tmp_path / "line")
    levels("IID").save(tmp_path / "doors")
    file = report.write(tmp_path / "r.html", report.page(collect([tmp_path, ROOT / "benchmarks/results"])))
    page = opened(file)
    for k in range(page.locator("#setting option").count()):
        page.select_option("#setting", str(k))
        assert ink(page, "#curve-chart")[0] > 3000
    page.select_option("#setting", label="minigrid")
    before = ink(page, "#taught-panels canvas")
    assert before[0] > 3000
    page.locator("#frame").focus()
    page.keyboard.press("End")
    assert ink(page, "#taught-panels canvas")[1] != before[1]
    page.select_option("#setting", label="line")
    assert ink(page, "#taught-panels canvas")[0] > 500 and not page.locator("#dim-x").is_visible()
    page.select_option("#setting", label="doors")
    assert (
        "the target is 8x8" in page.locator("#taught-lead").inner_text() and not page.locator("#distance").is_visible()
    )
    assert (
        "6x6" in page.locator("#taught-key").inner_text() and "8x8 (target)" in page.locator("#taught-key").inner_text()
    )
    assert ink(page, "#taught-panels canvas")[0] > 3000 and ink(page, "#learnt-panels canvas")[0] > 1000
    page.select_option("#setting", label="maze-plane (paper)")
    assert "not in these files" in page.locator("#taught-lead").inner_text()
    assert "no 95 % interval along the curve" in page.locator("#notes").inner_text()


@pytest.mark.browser
def test_the_page_says_what_was_cut_and_counts_it_apart(opened, cut_grid, tmp_path):
    page = opened(report.write(tmp_path / "r.html", report.page(collect([cut_grid]))))
    assert page.locator("#overview").inner_text() == "1 setting, 2 strategies and 1 unfinished, 4 runs (2 cut short)."
    assert "currot: cut short (interrupted) after 51,200 of 102,400 steps" in page.locator("#problems").text_content()
    lead = page.locator("#statistics-lead").inner_text()
    assert "Cut short, and not ranked: CURROT (after 51,200 of 102,400 steps)." in lead
    assert "Highest final return: CURROT" not in lead and "then CURROT" not in lead
    last = page.locator("#statistics-table tbody tr").last.inner_text()
    assert last.strip().startswith("CURROT")
    assert "2 cut short" in last and page.locator("#statistics-table tbody tr").last.locator(".best").count() == 0
