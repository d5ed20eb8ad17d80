"""The lowest versions that pyproject.toml allows, as `tools/versions.py` reads them."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def versions():
    spec = importlib.util.spec_from_file_location("versions", ROOT / "tools" / "versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def project(**extras):
    return {"name": "procurl", "dependencies": ["numpy>=2.0"], "optional-dependencies": extras}


def test_extras_name_others_and_the_higher_bound_counts(versions):
    given = project(
        a=["Some_Package>=1.1"],
        b=["procurl[a]", "some-package[fast]>=1.2.3,<9", "other~=4.5"],
        dev=["procurl[a,b]", "old>=1; python_version < '3.0'"],
    )
    bounds = versions.lower_bounds(given, "dev")
    assert bounds == {"numpy": Version("2.0"), "some-package": Version("1.2.3"), "other": Version("4.5")}
    assert versions.lower_bounds(given, "a")["some-package"] == Version("1.1")


@pytest.mark.parametrize("given", ["numpy", "numpy<3", "numpy!=2.1"])
def test_a_requirement_without_a_lower_bound_is_refused(versions, given):
    with pytest.raises(SystemExit, match="numpy.*: expected a lower bound in pyproject.toml"):
        versions.lower_bounds(project(dev=[given]), "dev")


def test_ours_all_have_one_that_this_environment_fulfils(versions):
    bounds = versions.lower_bounds(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"], "dev")
    assert {"jax", "scipy", "gymnasium", "stable-baselines3", "pytest", "matplotlib"} <= set(bounds)
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, pinned = line.partition("==")
        if name.lower().replace("_", "-") in bounds:
            assert bounds.pop(name.lower().replace("_", "-")) <= Version(pinned), line
    assert not bounds, "every direct requirement is pinned in constraints.txt"


def test_the_table_tells_what_was_there_and_how_it_went(versions, tmp_path):
    report = tmp_path / "tests.xml"
    assert versions.counted(report) == "pytest did not run"
    report.write_text('<testsuites><testsuite tests="10" failures="1" errors="2" skipped="3"></testsuite></testsuites>')
    assert versions.counted(report) == "4 passed, 3 failed, 3 skipped"
    outcome = versions.Outcome("3.11.7", {"numpy": "2.4.6", "torch": "2.13.0"}, versions.counted(report), ok=False)
    table = versions.table(">=3.11", {"numpy": Version("2.0")}, {"newest": outcome})
    assert table.splitlines()[1:] == [
        "| package | lower bound | newest |",
        "| --- | --- | --- |",
        "| Python | 3.11 | 3.11.7 |",
        "| numpy | 2.0 | 2.4.6 |",
        "| torch | pinned | 2.13.0 |",
        "| tests |  | 4 passed, 3 failed, 3 skipped |",
    ]
