"""`procurl doctor`: what it says of sound and unsound installations, and that it says nothing of the user."""

import getpass
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from procurl.cli import installation, selftest

SOUND = {
    "backend": "cpu", "devices": [{"platform": "cpu", "kind": "cpu"}] * 2, "float64": False, "matmul_precision": None,
    "prng": "threefry2x32", "without_jit": False, "cache": None, "mixes_classes": False,
}  # fmt: skip
TRAINED = {
    "digest": "a", "finite": True, "steps": 3072, "resumed_at": [], "compile_seconds": 9.0, "steps_per_second": 1e4,
    "cache_hits": 0,
}  # fmt: skip


def statuses(lines):
    return {line.name: line.status for line in lines}


def of_jax(**changed):
    return {line.name: line for line in installation.jax_findings({**SOUND, **changed}, "")}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(installation, "gpu_is_there", lambda: False)


def required(monkeypatch, there, *rows):
    monkeypatch.setattr(installation, "requirements", lambda: list(rows))
    monkeypatch.setattr(installation, "installed", {**there, "jaxlib": "0.10.2"}.get)


@pytest.mark.parametrize(
    ("version", "lowest", "older"),
    [("0.10.2", "0.8", False), ("0.7.9", "0.8", True), ("2.0", "2.0.0", False), ("2.0.0rc1", "2.0", False),
     ("1.13.1", "1.14", True), ("13.9.4", "13", False)],
)  # fmt: skip
def test_versions_compare_by_number(version, lowest, older):
    assert installation.is_older(version, lowest) is older


def test_a_version_older_than_allowed_and_a_missing_one_are_problems(monkeypatch):
    required(
        monkeypatch, {"jax": "0.7.0", "numpy": "2.4.6"}, ("jax", "0.8", ""), ("numpy", "2.0", ""), ("rich", "13", "")
    )
    lines = {line.name: line for line in installation.versions()}
    assert lines["jax"].status == "problem" and "0.7.0, expected 0.8 or newer" in lines["jax"].text
    assert lines["rich"].status == "problem" and "pip install 'rich>=13'" in lines["rich"].text
    assert lines["numpy"].status == "ok" and lines["python"].status == "ok"


def test_extras_come_with_the_line_that_adds_them(monkeypatch):
    required(
        monkeypatch, {"matplotlib": "3.11", "ray": "2.1"}, ("matplotlib", "3.9", "report"), ("av", "14", "video"),
        ("procurl[watch]", "", "video"), ("ray", "2.52", "ray"), ("mypy", "1.15", "dev"),
    )  # fmt: skip
    lines = {line.name: line for line in installation.extras()}
    assert lines.keys() == {"report", "video", "ray"}
    assert lines["report"].status == "ok" and lines["ray"].status == "problem"
    assert lines["video"].status == "note" and "pip install 'procurl[video]'" in lines["video"].text


def test_requirements_are_read_from_the_package(monkeypatch):
    given = ["numpy>=2.0", "gymnasium[box2d]>=1.2.3; extra == 'box2d'", 'procurl[gymnasium]; extra == "box2d"']
    monkeypatch.setattr(installation.metadata, "requires", lambda name: given)
    assert installation.requirements() == [
        ("numpy", "2.0", ""), ("gymnasium[box2d]", "1.2.3", "box2d"), ("procurl[gymnasium]", "", "box2d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "name", "status"),
    [
        ({"float64": True}, "float64", "problem"),
        ({"without_jit": True}, "compilation", "problem"),
        ({"matmul_precision": "tensorfloat32"}, "matrix products", "note"),
        ({"prng": "rbg"}, "random numbers", "note"),
        ({"mixes_classes": True}, "jax.jit", "note"),
    ],
)
def test_settings_of_jax_that_change_results(changed, name, status):
    assert name not in of_jax()
    assert of_jax(**changed)[name].status == status


def test_a_sound_jax_has_neither_notes_nor_problems():
    assert {line.status for line in of_jax().values()} == {"ok"}
    assert of_jax()["devices"].text == "2 x cpu (cpu)"


def test_a_jax_that_does_not_start_is_a_problem():
    lines = list(installation.jax_findings(None, "exit status -4: without a word"))
    assert [line.status for line in lines] == ["problem"] and "exit status -4" in lines[0].text


def test_a_gpu_that_jax_does_not_use(monkeypatch):
    monkeypatch.setattr(installation, "gpu_is_there", lambda: True)
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(installation, "installed", {"jaxlib": "0.10.2"}.get)
    assert of_jax()["GPU"].status == "note" and "pip install -U 'jax[cuda13]'" in of_jax()["GPU"].text
    monkeypatch.setattr(installation, "installed", {"jaxlib": "0.10.2", "jax-cuda13-plugin": "0.10.2"}.get)
    assert of_jax()["GPU"].status == "problem"
    assert "GPU" not in of_jax(backend="gpu")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert of_jax()["GPU"].status == "note" and "environment variables" in of_jax()["GPU"].text
    monkeypatch.setattr(installation, "installed", {"jaxlib": "0.10.2", "jax-cuda13-plugin": "0.9.0"}.get)
    assert of_jax(backend="gpu")["jax-cuda13-plugin"].status == "problem"


def test_the_compilation_cache_must_be_writable(tmp_path):
    (tmp_path / "file").write_text("")
    assert installation.cache_line(str(tmp_path / "new" / "cache")).status == "ok"
    assert installation.cache_line(str(tmp_path / "file" / "cache")).status == "problem"
    assert installation.cache_line("gs://bucket/cache").status == "ok"


def test_variables_that_matter_are_named_and_others_are_not():
    lines = {
        line.name: line
        for line in installation.variables({"JAX_DEBUG_NANS": "1", "SECRET": "x", "CUDA_VISIBLE_DEVICES": ""})
    }
    assert lines.keys() == {"JAX_DEBUG_NANS", "CUDA_VISIBLE_DEVICES"}
    assert lines["CUDA_VISIBLE_DEVICES"].status == "note" and lines["JAX_DEBUG_NANS"].text == "'1'"
    assert statuses(installation.variables({"NVIDIA_TF32_OVERRIDE": "1"})) == {"NVIDIA_TF32_OVERRIDE": "note"}


def test_a_full_disk_is_a_problem(monkeypatch):
    monkeypatch.setattr(
        installation.shutil, "disk_usage", lambda folder: installation.shutil._ntuple_diskusage(1e9, 1e9, 1e6)
    )
    assert statuses(installation.machine())["disk here"] == "problem"


def test_nothing_names_the_user_or_the_machine(monkeypatch):
    monkeypatch.setattr(installation, "_user", lambda: "alice")
    monkeypatch.setattr(installation.socket, "gethostname", lambda: "node7.lab.example")
    monkeypatch.setattr(installation.Path, "home", lambda: Path("/home/alice"))
    text = "/home/alice/cache and /scratch/alice/x on node7.lab.example (node7), not /home/alice2"
    assert installation.private(text) == "~/cache and /scratch/USER/x on HOST (HOST), not /home/alice2"


def played(monkeypatch, **answers):
    """The self-test with these answers of its three processes."""

    def child(*args, **options):
        return answers["cut" if "--cut" in args else "whole" if args[-1].endswith("whole") else "resumed"]

    monkeypatch.setattr(selftest, "child", child)
    return statuses(selftest.self_test(answers.get("device", "cpu")))


def test_the_self_test_tells_what_went_wrong(monkeypatch):
    whole, cut = (TRAINED, ""), (None, "")
    again = {**TRAINED, "resumed_at": [1024], "cache_hits": 3}
    good = played(monkeypatch, whole=whole, cut=cut, resumed=(again, ""))
    assert set(good.values()) == {"ok"} and {"training", "resuming", "compilation cache"} <= good.keys()
    other = ({**again, "digest": "b"}, "")
    assert played(monkeypatch, whole=whole, cut=cut, resumed=other)["resuming"] == "problem"
    assert played(monkeypatch, whole=whole, cut=cut, resumed=other, device="gpu")["resuming"] == "note"
    assert played(monkeypatch, whole=whole, cut=cut, resumed=(TRAINED, ""))["resuming"] == "problem"  # began anew
    uncached = ({**again, "cache_hits": 0}, "")
    assert played(monkeypatch, whole=whole, cut=cut, resumed=uncached)["compilation cache"] == "note"
    assert played(monkeypatch, whole=(None, "exit status 1"), cut=cut, resumed=whole) == {"training": "problem"}
    assert played(monkeypatch, whole=whole, cut=(None, "exit status 0"), resumed=whole)["checkpoint"] == "problem"


def test_a_child_that_fails_is_told_by_its_last_line(monkeypatch):
    found, error = selftest.child("train", "abacus", "nowhere")
    assert found is None and error.startswith("exit status 2") and "abacus" in error


def run_doctor(*args):
    return subprocess.run(
        [sys.executable, "-m", "procurl.cli", "doctor", *args], capture_output=True, text=True, timeout=900
    )


def test_json_for_a_bug_report():
    done = run_doctor("--json", "--quick")
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["problem"] else 0), done.stderr
    names = {line["name"] for line in report["lines"]}
    assert {"python", "procurl", "jaxlib", "cores", "disk here", "devices", "compilation cache"} <= names
    assert str(Path.home()) + "/" not in done.stdout
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", done.stdout)
    assert getpass.getuser() == "root" or getpass.getuser() not in done.stdout


@pytest.mark.slow
def test_the_self_test_passes_here():
    done = run_doctor("--json")
    lines = [line for line in json.loads(done.stdout)["lines"] if line["section"] == "Self-test on cpu"]
    assert {line["name"]: line["status"] for line in lines} == {
        "training": "ok", "resuming": "ok", "compilation cache": "ok", "time": "ok",
    }, lines  # fmt: skip
    assert any("bitwise" in line["text"] for line in lines)


@pytest.mark.slow
def test_a_run_that_is_cut_ends_without_a_result(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "procurl.cli.selftest", "train", "cpu", str(tmp_path / "run"), "--cut"],
        capture_output=True,
    )
    assert done.returncode == selftest.CUT_STATUS
    assert not (tmp_path / "run" / "manifest.json").exists() and list((tmp_path / "run" / "checkpoints").iterdir())
