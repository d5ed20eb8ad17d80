"""Do the tests pass with the newest version of everything, and with the oldest that pyproject.toml allows?

Makes a fresh virtual environment for each of the two, runs the fast tests in it, and prints a table of what was
installed and how it went. Further arguments go to pytest.

    make versions
    python tools/versions.py --only lowest tests/test_loop.py tests/test_result.py
    python tools/versions.py --python python3.13 --keep /tmp/environments

Needs `packaging` (pytest brings it) and a package index. Torch is the exception in both: it stays at the version of
constraints.txt, because any other that pip may choose comes with gigabytes of CUDA.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
EXTRA = "dev"  # what the tests need: all extras but Ray's
FAST = "not slow and not browser and not kill and not ray"


class Outcome(NamedTuple):
    """One environment: what was in it, and what the tests said."""

    python: str
    installed: dict[str, str]
    tests: str
    ok: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Further arguments go to pytest.")
    parser.add_argument("--only", choices=["newest", "lowest"], help="one of the two environments")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM", help="the interpreter, 3.11 or newer")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the environments there, and leave them")
    args, for_pytest = parser.parse_known_args()

    with tempfile.TemporaryDirectory(prefix="procurl-versions-") as temporary:
        home = (args.keep or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        bounds = lower_bounds(project, EXTRA)
        pins = {"newest": {}, "lowest": bounds}
        names = [args.only] if args.only else list(pins)
        outcomes = {name: tried(home / name, args.python, pins[name], for_pytest) for name in names}
    print(table(project["requires-python"], bounds, outcomes))
    return 0 if all(outcome.ok for outcome in outcomes.values()) else 1


def lower_bounds(project: dict[str, Any], extra: str) -> dict[str, Version]:
    """The oldest version of every requirement with an extra; where two bounds are given, the higher one."""
    bounds: dict[str, Version] = {}
    for requirement in requirements(project, extra):
        name = canonicalize_name(requirement.name)
        lowest = [Version(s.version) for s in requirement.specifier if s.operator in (">=", "==", "~=")]
        if not lowest:
            raise SystemExit(f"{requirement}: expected a lower bound in pyproject.toml, such as {name}>=1.0")
        bounds[name] = max(*lowest, bounds.get(name, Version("0")))
    return bounds


def requirements(project: dict[str, Any], extra: str | None) -> list[Requirement]:
    """Of the package and of one of its extras, which may name others as `procurl[other]`."""
    given = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    found = requirements(project, None) if extra else []
    for requirement in map(Requirement, given):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if canonicalize_name(requirement.name) == project["name"]:
            found += [r for other in sorted(requirement.extras) for r in requirements(project, other)]
        else:
            found.append(requirement)
    return found


def tried(home: Path, python: str, pins: dict[str, Version], for_pytest: list[str]) -> Outcome:
    """An environment, the package in it, and the tests."""
    print(f"\n=== {home.name}", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
    inside = str(home / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    limits = home / "limits.txt"
    limits.write_text("\n".join([torch_pin(), *(f"{name}=={version}" for name, version in pins.items())]) + "\n")

    def install(*what: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([inside, "-m", "pip", "install", "--quiet", *what], cwd=ROOT)

    install("--upgrade", "pip").check_returncode()
    install("--constraint", str(limits), "torch").check_returncode()  # first and alone, as in the Makefile
    done = install("--constraint", str(limits), "--editable", f".[{EXTRA}]")
    version = subprocess.run([inside, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    if done.returncode != 0:
        return Outcome(version, {}, "could not be installed together", ok=False)
    listing = subprocess.run([inside, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True).stdout
    installed = {str(canonicalize_name(row["name"])): row["version"] for row in json.loads(listing)}
    report = home / "tests.xml"
    report.unlink(missing_ok=True)
    options = ["-m", FAST, "-n", "auto", f"--junitxml={report}", *for_pytest]
    if pins:  # old packages upon new ones of others: their deprecations are not ours
        options += ["-W", "ignore::DeprecationWarning"]
    code = subprocess.run([inside, "-m", "pytest", *options], cwd=ROOT).returncode
    return Outcome(version, installed, counted(report), ok=code == 0)


def torch_pin() -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def counted(report: Path) -> str:
    """pytest's own numbers, from its report."""
    if not report.exists():
        return "pytest did not run"
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    bad, skipped = int(suite.attrib["failures"]) + int(suite.attrib["errors"]), int(suite.attrib["skipped"])
    return f"{int(suite.attrib['tests']) - bad - skipped} passed, {bad} failed, {skipped} skipped"


def table(python: str, bounds: dict[str, Version], outcomes: dict[str, Outcome]) -> str:
    """For people, and for a page of the documentation."""
    head = ["package", "lower bound", *outcomes]
    rows = [["Python", python.removeprefix(">="), *(outcome.python for outcome in outcomes.values())]]
    for name in [*sorted(bounds), "torch"]:
        bound = str(bounds.get(name, "pinned"))
        rows.append([name, bound, *(outcome.installed.get(name, "-") for outcome in outcomes.values())])
    rows.append(["tests", "", *(outcome.tests for outcome in outcomes.values())])
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(["", *lines])


if __name__ == "__main__":
    sys.exit(main())
