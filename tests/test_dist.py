"""What is released: the wheel and the sdist hold all they should, and work where nothing else is installed."""

import email
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import procurl
from procurl.cli.train import sb3_engine
from procurl.errors import MissingExtraError

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import dist  # noqa: E402
import pythons  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {"numpy", "scipy", "jax", "safetensors", "rich"}  # the declared dependencies; checked below


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist)"""
    files = dist.build(tmp_path_factory.mktemp("dist"))
    dist.check(files)
    wheel, sdist = sorted(files, key=lambda path: path.suffix != ".whl")
    return wheel, sdist


def files_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel):
    (content,) = (c for name, c in files_in(wheel).items() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(content)


def test_the_wheel_holds_every_file_of_the_package_and_no_other(built):
    there = {name: content for name, content in files_in(built[0]).items() if ".dist-info/" not in name}
    expected = {name.removeprefix("src/") for name in dist.tracked() if name.startswith("src/procurl/")}
    assert set(there) == expected
    assert {"procurl/py.typed", "procurl/envs/minigrid/pool.npz", "procurl/bench/theory/page.md"} <= expected
    for name, content in there.items():
        assert content == (ROOT / "src" / name).read_bytes(), name


def test_the_sdist_holds_all_that_is_tracked_but_recorded_results(built):
    with tarfile.open(built[1]) as archive:
        top = f"procurl-{procurl.__version__}/"
        there = {m.name.removeprefix(top) for m in archive.getmembers() if m.isfile()}
    made = {"PKG-INFO", "setup.cfg", *(name for name in there if name.startswith("src/procurl.egg-info/"))}
    left_out = (".", "benchmarks/results/")
    assert there - made == {name for name in dist.tracked() if not name.startswith(left_out)}


def test_the_metadata_says_what_pyproject_says(built):
    said = metadata(built[0])
    assert said["Name"] == "procurl" and said["Version"] == procurl.__version__
    assert said["Requires-Python"] == PROJECT["requires-python"]
    assert said["License-Expression"] == "MIT" and said.get_all("License-File") == ["LICENSE"]
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text().strip()
    base = {r.split(">")[0] for r in said.get_all("Requires-Dist") if "extra ==" not in r}
    assert base == BASE
    assert set(said.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    (licence,) = (c for name, c in files_in(built[0]).items() if name.endswith(".dist-info/licenses/LICENSE"))
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_a_wheel_without_the_detour_over_the_sdist_is_the_same(built, tmp_path):
    """As `pip install .` makes it."""
    for name in dist.tracked():
        if not name.startswith(("benchmarks/", "docs/", "tests/")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    dist.run("build", "--no-isolation", "--wheel", "--outdir", str(tmp_path / "out"), str(tmp_path))
    (wheel,) = (tmp_path / "out").iterdir()
    assert {k: v for k, v in files_in(wheel).items() if not k.endswith("RECORD")} == {
        k: v for k, v in files_in(built[0]).items() if not k.endswith("RECORD")
    }


def test_what_git_does_not_know_is_not_released(tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("kept.txt", "gone.txt"):
        (checkout / name).write_text("text")
    subprocess.run(["git", "init", "--quiet"], cwd=checkout, check=True)
    subprocess.run(["git", "add", "."], cwd=checkout, check=True)
    (checkout / "gone.txt").unlink()
    (checkout / "stray.txt").write_text("text")
    assert dist.tracked(checkout) == ["kept.txt"]
    with pytest.raises(SystemExit, match="no git checkout"):
        dist.tracked(tmp_path)


def test_the_declared_pythons_are_found_or_known_to_be_absent():
    versions = pythons.declared()
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=") and len(versions) == 3
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert here in versions and pythons.find(here) == Path(sys.executable)
    assert pythons.find("2.0") is None
    assert not pythons.answers(ROOT / "README.md", here)


def test_another_engine_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "procurl.integrations.sb3_engine", raising=False)
    monkeypatch.delattr("procurl.integrations.sb3_engine", raising=False)
    with pytest.raises(MissingExtraError, match=r"--engine sb3 needs torch: pip install 'procurl\[sb3\]'"):
        sb3_engine()


def test_the_version_is_the_same_everywhere():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## [{procurl.__version__}]" in changelog
    assert f"\nversion: {procurl.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_paper_is_cited_and_the_forms_can_be_read():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper = citation["preferred-citation"]
    assert [a["family-names"] for a in paper["authors"]] == ["Tzannetos", "Kamalaruban", "Singla"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation) and citation["license"] == PROJECT["license"]
    forms = {p.stem: yaml.safe_load(p.read_text()) for p in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "feature", "question", "config"}
    for name in ("bug", "feature", "question"):
        ids = [part["id"] for part in forms[name]["body"] if part["type"] != "markdown"]
        assert len(set(ids)) == len(ids) > 0 and forms[name]["name"] and forms[name]["description"]
    (doctor,) = (part for part in forms["bug"]["body"] if part.get("id") == "doctor")
    assert doctor["attributes"]["label"] == "procurl doctor --json" and doctor["validations"]["required"]


# --- installed: from here on an index is needed ---


class Place:
    """An environment in which nothing is installed but what is asked for."""

    def __init__(self, home):
        venv.create(home, with_pip=True, symlinks=True)
        self.bin, self.work = home / "bin", home / "work"
        self.work.mkdir()
        self.env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "XLA_FLAGS")}
        self.given = self.packages()  # Python 3.11 puts setuptools into every new environment

    def run(self, program, *arguments):
        command = [str(self.bin / program), *map(str, arguments)]
        return subprocess.run(command, cwd=self.work, env=self.env, capture_output=True, text=True, timeout=600)

    def ok(self, program, *arguments):
        done = self.run(program, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def packages(self):
        script = "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))"
        return set(self.ok("python", "-c", script).split())

    def install(self, what):
        self.ok("python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", what)


@pytest.fixture(scope="module")
def place(built, tmp_path_factory):
    """The wheel alone, without extras, and one short run."""
    place = Place(tmp_path_factory.mktemp("empty"))
    place.install(built[0])
    place.ok("procurl", "train", "point-mass-1t", "--steps", "10k", "--out", "runs/first")
    return place


@pytest.mark.slow
def test_the_base_install_brings_only_what_is_declared(place):
    there = place.packages() - place.given
    assert BASE | {"procurl"} <= there
    assert not there & {
        "matplotlib",
        "gymnasium",
        "torch",
        "pillow",
        "ray",
        "wandb",
        "tensorboard",
        "optax",
        "setuptools",
    }


@pytest.mark.slow
def test_version_help_and_list(place):
    version = place.ok("python", "-c", "import importlib.metadata as m; print(m.version('procurl'))").strip()
    assert version == procurl.__version__ == importlib.metadata.version("procurl")
    assert place.ok("procurl", "--version").strip() == f"procurl {version}"
    assert Path(place.ok("python", "-c", "import procurl; print(procurl.__file__)").strip()).is_relative_to(
        place.bin.parent
    )
    assert "report" in place.ok("procurl", "--help")
    listed = place.ok("procurl", "list")
    assert all(name in listed for name in [*procurl.SETTINGS, *procurl.TEACHERS])


@pytest.mark.slow
def test_a_short_run_is_evaluated_and_reported(place):
    assert procurl.load_result(place.work / "runs/first").steps[-1] == 10_240
    assert "mean over tasks" in place.ok("procurl", "evaluate", "runs/first", "--episodes", 2)
    place.ok("procurl", "report", "runs", "-o", "report.html", "--markdown", "tables.md")
    assert "procurl-target" in (place.work / "report.html").read_text().lower().replace(
        "procurltarget", "procurl-target"
    )
    assert "| " in (place.work / "tables.md").read_text()
    place.ok("procurl", "doctor", "--quick")
    place.ok("python", "-c", "import procurl; env, space = procurl.make('minigrid'); print(space.pool.context.shape)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("report", "plot runs --out pictures"),
        ("report", "theory --seeds 1 --steps 10"),
        ("watch", "watch runs/first"),
        ("box2d", "train bipedal --steps 1k"),
        ("sb3", "train point-mass-1t --steps 1k --engine sb3"),
        ("tracking", "train point-mass-1t --steps 1k --out runs/logged --log tensorboard"),
        ("ray", "bench smoke --out runs/smoke --executor ray"),
    ],
)
def test_what_needs_an_extra_says_which(place, extra, command):
    done = place.run("procurl", *command.split())
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"pip install 'procurl[{extra}]'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_with_the_extra_the_pictures_are_drawn(place, built):
    """Last here: it adds matplotlib to the place."""
    place.install(f"{built[0]}[report]")
    pictures = [
        place.work / line for line in place.ok("procurl", "plot", "runs/first", "--out", "pictures").splitlines()
    ]
    assert pictures and all(path.stat().st_size > 5_000 for path in pictures)


@pytest.mark.slow
def test_the_sdist_installs_as_well(built, tmp_path):
    place = Place(tmp_path)
    place.ok("python", "-m", "pip", "install", "--quiet", "--no-deps", built[1])
    assert place.ok("procurl", "--version").strip() == f"procurl {procurl.__version__}"
    there = {p.relative_to(next(place.bin.parent.glob("lib/*/site-packages"))).as_posix()
             for p in place.bin.parent.glob("lib/*/site-packages/procurl/**/*")
             if p.is_file() and "__pycache__" not in p.parts}  # fmt: skip
    assert there == {name for name in files_in(built[0]) if ".dist-info/" not in name}
