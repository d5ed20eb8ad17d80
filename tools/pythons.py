"""The wheel in every Python that we declare and that this machine has (`make pythons`); the absent ones are named.

Each gets an environment of its own in build/pythons/, with the wheel, the pinned dependencies and pytest, and runs a
representative part of the tests against what was installed there.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from dist import ROOT, build

TESTS = ("test_teachers.py", "test_loop.py", "test_cli.py", "test_result.py", "test_public_names.py")
NOT_HERE = "not slow and not browser and not kill and not ray"


def declared() -> list[str]:
    """The versions that pyproject.toml promises, oldest first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return [m[1] for c in classifiers if (m := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c))]


def find(version: str) -> Path | None:
    """An interpreter of that version which starts and can make environments: on the path, of pyenv or of uv."""
    return next((path for path in candidates(version) if answers(path, version)), None)


def candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    yield from sorted(uv.glob(f"cpython-{version}.*/bin/python{version}"), reverse=True)


def answers(python: Path, version: str) -> bool:
    script = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def try_out(python: Path, version: str, wheel: Path, tests: list[str]) -> bool:
    """Install the wheel and run the tests there. True if all went well."""
    home = ROOT / "build" / "pythons" / version
    inside = home / "bin" / "python"
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    install = [inside, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt"]
    steps = [
        [python, "-m", "venv", "--clear", home],
        [*install, f"{wheel}[report]", "pytest", "hypothesis"],
        [inside, "-c", "import platform, jax, procurl; print(platform.python_version(), jax.__version__, procurl)"],
        [inside, "-m", "pytest", "-q", "-m", NOT_HERE, *(f"tests/{name}" for name in tests)],
    ]
    return all(subprocess.run(step, cwd=ROOT, env=env).returncode == 0 for step in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="Test the wheel in every declared Python that is found.")
    parser.add_argument("versions", nargs="*", default=declared(), help="default: " + " ".join(declared()))
    parser.add_argument(
        "--tests", nargs="+", default=TESTS, metavar="FILE", help="in tests/; default " + " ".join(TESTS)
    )
    args = parser.parse_args()
    wheel = next(path for path in build(ROOT / "dist") if path.suffix == ".whl")
    said = {}
    for version in args.versions:
        python = find(version)
        if python is None:
            said[version] = "skipped: no such interpreter here"
        else:
            print(f"Python {version}: {python}", flush=True)
            said[version] = "passed" if try_out(python, version, wheel, args.tests) else "FAILED"
    for version, outcome in said.items():
        print(f"Python {version}: {outcome}")
    if "passed" not in said.values() or "FAILED" in said.values():
        sys.exit(1)


if __name__ == "__main__":
    main()
