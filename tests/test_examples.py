"""The examples run, and stay short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import procurl

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(code: str) -> str:
    setup = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # tests run side by side, one per core
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["own_loop", "sb3_cartpole", "new_teacher", "new_environment"])
def test_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


def test_nothing_is_to_be_said_against_the_new_teacher(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import new_teacher

    space = procurl.task_space([0.0], [1.0], target=[1.0], pool_size=20)
    assert procurl.check_teacher(new_teacher.HalfMastered(space)) == ()


@pytest.mark.slow
def test_a_new_teacher():
    assert "training success per iteration: [" in run("import new_teacher; new_teacher.main(steps=10_240)")


@pytest.mark.slow
def test_a_new_environment():
    said = run("import new_environment; new_environment.main(steps=10_240)")
    assert "procurl-target: return on the target" in said and "iid: return" in said
