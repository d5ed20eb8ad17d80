"""Module paths of version 0.1 give the modules that have taken their place, and say so."""

import importlib
import pickle
import subprocess
import sys

import pytest

import procurl
from procurl.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_is_the_new_module(old):
    new = pytest.importorskip(MOVED[old], reason="needs an extra", exc_type=ImportError)
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved: import {MOVED[old]} instead"):
        assert importlib.import_module(old) is new
    assert importlib.import_module(old) is new  # known by now: without a word


def test_a_package_that_has_moved_takes_its_modules_along():
    sys.modules.pop("procurl.theory", None)
    with pytest.warns(DeprecationWarning, match="procurl.theory"):
        from procurl.theory.bandit import random_bandit as old
    from procurl.bench.theory.bandit import random_bandit as new

    assert old is new


def test_an_old_path_as_an_attribute():
    vars(procurl).pop("policy", None)
    sys.modules.pop("procurl.policy", None)
    with pytest.warns(DeprecationWarning, match="procurl.policy has moved"):
        assert procurl.policy.unflatten is importlib.import_module("procurl.students.policy").unflatten


def test_a_pickle_of_before_is_read():
    sys.modules.pop("procurl.result", None)
    with pytest.warns(DeprecationWarning, match="procurl.result"):
        assert pickle.loads(b"cprocurl.result\nResult\n.") is procurl.Result  # noqa: S301


def test_the_warning_names_the_line_that_imports(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import procurl.task_spaces\n")
    done = subprocess.run([sys.executable, "-W", "always", str(script)], capture_output=True, text=True)
    assert f"{script}:1: DeprecationWarning: procurl.task_spaces has moved" in done.stderr
