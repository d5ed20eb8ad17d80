"""The sdist, and the wheel that is built from it, in dist/ (`make dist`). Nothing is fetched.

Setuptools takes up whatever lies in build/ or in the source folder, such as a module that was deleted last week. So the
tracked files, as they are on disk, are copied to a new folder, and the build happens there.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tracked(root: Path = ROOT) -> list[str]:
    """The paths of the files that git knows of and that are on disk."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{root} is no git checkout, so nobody knows what belongs to a release: {done.stderr.strip()}")
    return [name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def build(out: Path, root: Path = ROOT) -> list[Path]:
    """Write the sdist and the wheel to a folder; both are returned."""
    with tempfile.TemporaryDirectory() as name:
        clean, fresh = Path(name) / "source", Path(name) / "dist"
        for file in tracked(root):
            (clean / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, clean / file)
        # Without isolation the build uses the setuptools of this environment, and needs no network.
        run("build", "--no-isolation", "--outdir", str(fresh), str(clean))
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(path, out / path.name)) for path in sorted(fresh.iterdir())]


def check(files: list[Path]) -> None:
    """What a package index would look at: the metadata, and whether the README renders."""
    run("twine", "check", "--strict", *map(str, files))


def run(module: str, *arguments: str) -> None:
    """A tool of this environment, heard only if it fails."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"python -m {module} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the sdist and the wheel, and check their metadata.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="default dist/")
    files = build(parser.parse_args().out)
    check(files)
    for path in files:
        print(f"{path}  {path.stat().st_size:,} bytes  sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
