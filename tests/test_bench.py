"""Grids as a user meets them: real processes, what is done is skipped, what fails is said."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import PASSES
from worlds import assert_same_up_to_rounding, run

import procurl
from procurl import presets
from procurl.bench.grid import cells, suites
from procurl.bench.grid.cells import Cell, Group, cells_of
from procurl.bench.grid.folder import GridFolder, State, status_table
from procurl.bench.grid.suites import Row, Suite, find_suite
from procurl.errors import ConfigError, RunFolderError
from procurl.runs.store import checkpoint
from procurl.runs.store.join import joined

DETERMINISTIC = ("config.json", "provenance.json", "evaluations.npz", "trace.npz", "policy.safetensors")
TINY = """
summary = "two strategies, two blocks of seeds"

[[rows]]
settings = ["point-mass-1t"]
teachers = ["iid", "target"]
seeds = 2
steps = 6_000
block = 1
"""


def environment():
    """As on a user's command line, without the devices that the tests ask for; their cache of programs stays."""
    return {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"} | {"XLA_FLAGS": PASSES}


def bench(*args, timeout=600):
    return subprocess.run(
        [sys.executable, "-m", "procurl.cli", "bench", *map(str, args)],
        capture_output=True, text=True, timeout=timeout, env=environment(),
    )  # fmt: skip


def result_files(out):
    """All that a benchmark leaves, but for clocks, logs, and manifests, which hold the digest of a clock."""
    return {
        str(p.relative_to(out)): p.read_bytes()
        for p in sorted(out.rglob("*"))
        if p.is_file() and (p.name in DETERMINISTIC or p.name == "grid.json" or "checkpoints" in p.parts)
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "out"
    done = bench(tiny, "--out", out, "--device", "cpu", "--workers", 1)  # the second of a kind finds its programs
    assert done.returncode == 0, done.stderr
    assert "tiny: 4 cells, 4 done" in done.stdout and done.stderr.count("started: ") == 4
    return out


@pytest.fixture
def grid(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "out"))


@pytest.mark.kill
def test_blocks_are_joined_and_equal_the_plain_command(finished, tmp_path):
    result = procurl.load_result(finished / "point-mass-1t-iid")
    assert result.seeds.tolist() == [0, 1] == result.config["seeds"] and result.status == "finished"
    assert result.steps.tolist() == [0, 10240] and result.timing["teacher_share_timed_alone"] > 0
    assert len(result.provenance["cells"]) == 2 and result.provenance["devices"] == ["cpu:cpu"]
    one_device = {"XLA_FLAGS": f"{PASSES} --xla_force_host_platform_device_count=1"}
    done = subprocess.run(
        [sys.executable, "-m", "procurl.cli", "train", "point-mass-1t", "--teacher", "iid", "--seeds", "1", "--steps",
         "6000", "--out", str(tmp_path / "run"), "--quiet", "--device", "cpu"],
        capture_output=True, text=True, env={**environment(), **one_device},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain = procurl.load_result(tmp_path / "run")
    np.testing.assert_array_equal(result.task_ret[:1], plain.task_ret)
    np.testing.assert_array_equal(result.trace["task_row"][:1], plain.trace["task_row"])


@pytest.mark.slow  # the tests that kill benchmarks go on with them, too
def test_what_is_done_is_skipped_and_more_seeds_are_added(grid, tiny):
    before = {p: p.stat().st_mtime_ns for p in grid.rglob("*.npz")}
    done = bench(tiny, "--out", grid, "--device", "cpu")
    assert done.returncode == 0 and "4 of 4 cells are already done" in done.stderr and "started" not in done.stderr
    assert {p: p.stat().st_mtime_ns for p in grid.rglob("*.npz")} == before
    done = bench(tiny, "--out", grid, "--device", "cpu", "--seeds", 3, "--teachers", "iid")
    assert done.returncode == 0 and "2 of 3 cells are already done" in done.stderr, done.stderr
    assert procurl.load_result(grid / "point-mass-1t-iid").seeds.tolist() == [0, 1, 2]
    assert procurl.load_result(grid / "point-mass-1t-target").seeds.tolist() == [0, 1], "left alone"


@pytest.mark.slow
def test_a_failed_cell_is_tried_again_reported_and_can_be_repaired(grid, tiny):
    cell = next((grid / "cells").glob("point-mass-1t-iid-s1-*"))
    shutil.rmtree(cell)
    cell.mkdir()
    (cell / "somebody's file").touch()
    done = bench(tiny, "--out", grid, "--device", "cpu", "--retries", 1)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("will be tried again") == 1 and done.stderr.count(f"started: {cell.name}") == 2
    assert f"procurl: {cell.name} failed: " in done.stderr and "is not empty" in done.stderr
    assert str(grid / "logs" / f"{cell.name}.log") in done.stderr and "Traceback" not in done.stderr
    result = procurl.load_result(grid / "point-mass-1t-iid")
    assert result.seeds.tolist() == [0] and result.provenance["missing_seeds"] == [1]
    assert result.status == "incomplete"
    table = bench("status", grid).stdout
    assert table.count("done ") == 3 and table.count("failed ") == 1 and "is not empty" in table
    (cell / "somebody's file").unlink()
    done = bench(tiny, "--out", grid, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert procurl.load_result(grid / "point-mass-1t-iid").seeds.tolist() == [0, 1]


@pytest.mark.kill
def test_a_damaged_cell_is_named_and_not_averaged(grid, tiny):
    cell = next((grid / "cells").glob("point-mass-1t-target-s1-*"))
    with open(cell / "trace.npz", "ab") as file:
        file.write(b"x")
    done = bench(tiny, "--out", grid, "--device", "cpu")
    assert done.returncode == 1 and "trace.npz" in done.stderr and "Move that folder away" in done.stderr
    assert procurl.load_result(grid / "point-mass-1t-target").seeds.tolist() == [0]


@pytest.mark.kill
def test_two_processes_cannot_work_in_one_folder(grid, tiny):
    before = result_files(grid)
    with checkpoint.only_writer(grid):
        done = bench(tiny, "--out", grid, "--device", "cpu", "--seeds", 8)
        assert "running" not in bench("status", grid).stdout
    assert done.returncode == 1 and "is being written by another process" in done.stderr
    assert result_files(grid) == before


def test_ctrl_c_says_how_to_go_on(tiny, tmp_path):
    command = [sys.executable, "-m", "procurl.cli", "bench", str(tiny), "--out", str(tmp_path / "o"), "--device", "cpu",
               "--steps", "100M", "--workers", "1"]  # fmt: skip
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  # tests in the background may not
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(), preexec_fn=listen
    ) as process:  # fmt: skip
        assert "started: " in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=120) == 130
    assert "The same command goes on" in rest and "4 cells, 4 waiting" in rest and "Traceback" not in rest
    assert "running" not in bench("status", tmp_path / "o").stdout


@pytest.mark.kill
def test_a_folder_of_something_else_is_left_alone(grid, tiny, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    done = bench(tiny, "--out", tmp_path / "home", "--device", "cpu")
    assert done.returncode == 1 and "thesis.tex" in done.stderr
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["thesis.tex"]
    shutil.rmtree(grid / "point-mass-1t-iid")
    (grid / "point-mass-1t-iid").mkdir()
    (grid / "point-mass-1t-iid" / "notes.txt").touch()
    done = bench(tiny, "--out", grid, "--device", "cpu")
    assert done.returncode == 1 and "is not of this benchmark" in done.stderr
    assert (grid / "point-mass-1t-iid" / "notes.txt").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nonsense"], "unknown suite 'nonsense'"),
        (["nowhere.toml"], "cannot read the suite"),
        (["smoke", "--settings", "minigrid"], "unknown setting of the suite smoke"),
        (["smoke", "--teachers", "idd"], "Did you mean iid"),
        (["smoke", "--variant", "papr"], "Did you mean paper"),
        (["smoke", "--workers", "0"], "--workers 0: expected at least 1"),
        (["smoke", "--address", "localhost:1"], "expected with --executor ray only"),
        (["smoke", "somewhere"], "expected with `procurl bench status` only"),
        (["status", "somewhere"], "holds no benchmark"),
        (["status"], "there is no benchmark in runs/"),
    ],
)
def test_mistakes_are_named(args, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "procurl.cli", "bench", *args, *(["--device", "cpu"] if args[0] != "status" else [])],
        capture_output=True, text=True, timeout=120, env=environment(), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


@pytest.mark.kill
def test_status_and_misspelt_names_do_not_import_jax(finished):
    for command in (["bench", "status", str(finished)], ["bench", "nonsense"], ["bench", "--help"]):
        script = f"import sys; from procurl.cli import main\ntry: main({command!r})\nexcept SystemExit: pass\n"
        script += "print('jax' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_a_missing_extra_is_named(tiny, tmp_path):
    script = "import sys; sys.modules['ray'] = None; from procurl.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, "bench", str(tiny), "--out", str(tmp_path / "out"), "--executor", "ray"],
        capture_output=True, text=True, timeout=120, env=environment(),
    )  # fmt: skip
    assert done.returncode == 1 and "--executor ray needs ray: pip install 'procurl[ray]'" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_suites_name_what_there_is_and_take_the_papers_numbers():
    for suite in suites.SUITES.values():
        assert suite.summary and set(suite.settings) <= set(presets.SETTINGS)
        assert {t for row in suite.rows for t in row.teachers} <= set(presets.TEACHERS)
    maze = cells_of(suites.SUITES["maze"])
    assert len(maze) == len(suites.PAPER_TEACHERS) * 2 and {c.steps for c in maze} == {1_000_000}
    assert [c.seeds for c in maze[:2]] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    whole = cells_of(suites.SUITES["maze"], whole=True)
    assert [c.seeds for c in whole] == [tuple(range(10))] * len(suites.PAPER_TEACHERS)


def test_names_that_nobody_knows_are_refused():
    suite = Suite("mine", "", (Row(("point-mass-1t", "maze-plain")),))
    with pytest.raises(ConfigError, match="unknown setting 'maze-plain'. Did you mean maze-plane"):
        cells_of(suite)
    assert len(cells_of(suite.narrowed(["point-mass-1t"]))) == len(suites.PAPER_TEACHERS) * 5
    with pytest.raises(ConfigError, match="twice"):
        cells_of(Suite("mine", "", (Row(("maze-plane",), ("iid", "iid:paper")),)))


def test_a_hash_tells_configurations_and_versions_apart(monkeypatch):
    def digests():
        release = Group("maze-plane", "currot", "release")
        paper = Group("maze-plane", "currot", "paper")
        return [
            cells.digest(group, seeds, steps)
            for group in (paper, release)
            for seeds in ((0, 1), (0, 1, 2), (1, 0))
            for steps in (1000, 2000)
        ]

    first = digests()
    assert len(set(first)) == 12 and digests() == first
    monkeypatch.setattr(cells, "__version__", "99")
    assert not set(digests()) & set(first)


def test_names_of_cells_can_be_read():
    group = Group("maze-plane", "currot", "release")
    names = [Cell(group, seeds, 1, "abc").name for seeds in ((3,), (3, 4, 5), (3, 5))]
    assert names == [f"maze-plane-currot-release-{block}-abc" for block in ("s3", "s3-5", "2seeds")]


def test_a_suite_of_ones_own(tiny):
    suite = find_suite(str(tiny))
    assert (suite.name, suite.rows) == ("tiny", (Row(("point-mass-1t",), ("iid", "target"), (0, 1), 6000, block=1),))
    other = suite.narrowed(seeds=(7,), steps=None, teachers=("plr:release",))
    assert cells_of(other)[0].group == ("point-mass-1t", "plr", "release") and cells_of(other)[0].steps == 6000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows = 3", "rows = 3: expected list"),
        ("", "has no rows"),
        ("[[rows]]\nteachers = ['iid']", "row 1: expected settings"),
        ("[[rows]]\nsettings = 'maze-plane'", "expected list"),
        ("[[rows]]\nsettings = [1]", "expected a list of str"),
        ("[[rows]]\nsettings = ['maze-plane']\nstep = 3", "Did you mean steps"),
        ("[[rows]]\nsettings = ['maze-plane']\nsteps = true", "steps = True: expected int"),
        ("[[rows]]\nsettings = ['maze-plane']\nseeds = 0", "expected at least one"),
        ("[[rows]]\nsettings = ['maze-plane']\nseeds = [1, 1]", "all different"),
        ("[[rows]]\nsettings = ['maze-plane']\nblock = 0", "row 1: block = 0: expected at least 1"),
        ("[[rows]", "is no TOML file"),
    ],
)
def test_mistakes_in_a_suite_are_named(text, said, tmp_path):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.toml") as caught:
        find_suite(str(tmp_path / "mine.toml"))
    assert said in str(caught.value)


@pytest.mark.slow
def test_joined_blocks_are_the_run_of_all_seeds():
    parts = [run("iid", seeds=(0, 1)), run("iid", seeds=(2,))]
    whole, together = run("iid", seeds=3), joined(parts)
    assert_same_up_to_rounding(whole, together)
    assert together.config == whole.config and together.seeds.tolist() == [0, 1, 2]
    assert together.provenance == whole.provenance
    np.testing.assert_allclose(together.timing["compile_seconds"], sum(p.timing["compile_seconds"] for p in parts))
    elsewhere = dataclasses.replace(parts[1], provenance={**parts[1].provenance, "processor": "another"})
    origins = joined([parts[0], elsewhere]).provenance["origins"]
    assert [o["processor"] for o in origins] == [whole.provenance["processor"], "another"]
    with pytest.raises(ConfigError, match="seed 2 is in more than one"):
        joined([parts[1], parts[1]])
    other = dataclasses.replace(parts[1], config={**parts[1].config, "steps": 5})
    with pytest.raises(ConfigError, match="they differ in .*steps.*expected seeds alone"):
        joined([parts[0], other])
    with pytest.raises(ConfigError, match="no results"):
        joined([])


def test_states_come_back_from_disk(tmp_path):
    made = [Cell(Group("maze-plane", "iid", "paper"), (s,), 1000, f"{s}") for s in range(4)]
    folder = GridFolder(tmp_path, "mine", made)
    for cell, state in zip(made, ("done", "running", "waiting", "failed"), strict=True):
        folder.states[cell] = State(state, 500, 1000, 0.25, "broken" if state == "failed" else "")
    folder.save()
    with checkpoint.only_writer(tmp_path):
        held = GridFolder.load(tmp_path)
        assert held.states == folder.states and "1 done, 1 running, 1 waiting, 1 failed" in status_table(held)
    left = GridFolder.load(tmp_path)
    assert [s.state for s in left.states.values()] == ["done", "waiting", "waiting", "failed"]
    assert "500 / 1,000" in status_table(left) and "0.250" in status_table(left) and "broken" in status_table(left)
    row = json.loads((tmp_path / "grid.json").read_text())
    for damaged in ({**row, "version": 0}, {**row, "cells": [{}]}, 3):
        (tmp_path / "grid.json").write_text(json.dumps(damaged))
        with pytest.raises(RunFolderError, match="cannot be read"):
            GridFolder.load(tmp_path)


def test_the_display_on_a_terminal(tmp_path):
    from rich.console import Console

    from procurl.bench.grid.display import Display

    made = [Cell(Group("maze-plane", "iid", "paper"), (s,), 1000, f"{s}") for s in range(3)]
    folder = GridFolder(tmp_path, "mine", made)
    screen = io.StringIO()
    display = Display(folder)
    display.console = Console(file=screen, force_terminal=True, width=120)
    with display:
        display.refresh()
        folder.states[made[0]] = State("done", 1000, 1000, 0.5)
        folder.states[made[1]] = State("running", 500, 1000, 0.25)
        display.news("something new")
    text = screen.getvalue()
    assert "mine: 3 cells, 1 done, 1 running, 1 waiting | 50% of the steps | about" in text
    assert "maze-plane-iid-s1-1" in text and "return 0.250" in text and "something new" in text


@pytest.mark.kill
def test_a_report_counts_every_seed_once(finished, tmp_path):
    """The joined runs alone; and of a strategy that has not been joined, its cells."""
    from procurl.bench.report.studies import collect

    def seeds(path):
        collection = collect([path])
        assert not any(strategy.notes for study in collection.studies for strategy in study.strategies)
        return {s.teacher: s.seeds.tolist() for study in collection.studies for s in study.strategies}, collection

    whole, collection = seeds(finished)
    assert collection.problems == [] and all(len(set(x)) == len(x) > 0 for x in whole.values())
    cut = tmp_path / "cut"
    shutil.copytree(finished, cut)
    grid = GridFolder.load(cut)
    shutil.rmtree(grid.merged(grid.cells[0].group))
    assert seeds(cut)[0] == whole
    grid.states[grid.cells[-1]].state = "waiting"
    grid.save()
    assert ["unfinished" in p for p in seeds(cut)[1].problems] == [True]
