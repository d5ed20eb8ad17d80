"""Teachers and settings of installed packages: found by name, loaded when the name is used, never for a folder."""

import dataclasses
import subprocess
import sys

import pytest
from worlds import SMALL, small_setting

import procurl
from procurl import installed, presets
from procurl.bench.grid.cells import planned
from procurl.bench.grid.own import named_on
from procurl.bench.grid.suites import SUITES, Row, Suite
from procurl.errors import ConfigError
from procurl.runs.chosen import chosen_setting, chosen_teacher
from procurl.runs.class_origin import class_notes
from procurl.runs.store.result import Result

THINGS = """
from dataclasses import dataclass
import jax
from procurl.config import param
from procurl.teachers.base import PoolTeacher
from worlds import SMALL, Walk, walk_space

@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trek(Walk):
    pace: float = param(1.0, "how far a step goes")

@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Theirs(PoolTeacher):
    beta: float = param(5.0, "inverse temperature", at_least=0)

def trek():
    return Trek(), walk_space(), SMALL

plain = (Trek(), walk_space())
def wrong(): return Trek(), 3
def breaks(): raise RuntimeError("no disk")
"""
POINTS = """
[procurl.teachers]
their-teacher = theirs_for_tests.things:Theirs
iid = theirs_for_tests.things:Theirs
odd-teacher = theirs_for_tests.things:plain
lost-teacher = theirs_for_tests.nothing:Lost

[procurl.settings]
their-trek = theirs_for_tests.things:trek
plain-trek = theirs_for_tests.things:plain
wrong-trek = theirs_for_tests.things:wrong
broken-trek = theirs_for_tests.things:breaks
"""
MODULES = ("theirs_for_tests", "theirs_for_tests.things")


def install(site, name, points, version="1.2"):
    """As pip leaves it."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)


@pytest.fixture
def package(tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "theirs_for_tests").mkdir(parents=True)
    (site / "theirs_for_tests" / "__init__.py").write_text("")
    (site / "theirs_for_tests" / "things.py").write_text(THINGS)
    install(site, "theirs", POINTS)
    monkeypatch.syspath_prepend(site)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield site
    for name in MODULES:
        sys.modules.pop(name, None)


def is_loaded():
    return "theirs_for_tests" in sys.modules


def test_names_are_listed_without_importing_anything(package, command):
    done = command("list")
    said = " ".join(done.stdout.split())
    assert "their-trek of theirs 1.2" in said and "their-teacher of theirs 1.2" in said
    assert "note: the teacher iid of theirs 1.2 is not used: procurl has one of that name" in done.stdout
    assert "The other can be named as theirs_for_tests.things:Theirs" in done.stdout
    assert not is_loaded()


def test_make_and_make_teacher_know_them(package):
    env, space = procurl.make("their-trek", pace=2.0)
    assert (type(env).__name__, env.pace, space.name) == ("Trek", 2.0, "their-trek")
    assert procurl.preset("their-trek") == SMALL and procurl.preset("plain-trek") == procurl.Config()
    teacher = procurl.make_teacher("their-teacher", space, beta=2.0)
    assert (type(teacher).__name__, teacher.beta) == ("Theirs", 2.0)
    assert procurl.make_teacher("their-teacher", small_setting()[1]).beta == 5.0
    assert type(procurl.make_teacher("procurl-target", space)).__name__ == "ProCuRLTarget", "without presets"
    with pytest.raises(ConfigError, match="unknown option of Trek 'pase'. Did you mean pace"):
        procurl.make("their-trek", pase=2.0)
    with pytest.raises(ConfigError, match="redraw_every = 5: their-teacher remembers its tasks"):
        procurl.make_teacher("their-teacher", space, redraw_every=5)


def test_a_name_of_procurls_own_wins_and_that_is_said(package, command):
    assert isinstance(procurl.make_teacher("iid", small_setting()[1]), procurl.IID)
    done = command("train", "point-mass-2g", "--teacher", "iid", "--set", "nonsense=1")
    assert "procurl: the teacher iid of theirs 1.2 is not used" in done.stderr and not is_loaded()
    done = command("train", "point-mass-2g", "--teacher", "plr", "--set", "nonsense=1")
    assert "is not used" not in done.stderr
    done = command("bench", "smoke", "--teachers", "iid", "plr", "--block", "0")
    assert done.stderr.count("procurl: the teacher iid of theirs 1.2 is not used") == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: procurl.make("their-trekk"), "unknown setting 'their-trekk'. Did you mean their-trek"),
        (lambda: procurl.make("wrong-trek"), "the setting wrong-trek of theirs 1.2 gives tuple of Trek, int: expected"),
        (lambda: procurl.make("broken-trek"), "the setting broken-trek of theirs 1.2 cannot be made: .*no disk"),
        (lambda: installed.teacher("odd-teacher", ()), "of theirs 1.2 is tuple: expected a class with init, propose"),
        (lambda: installed.teacher("lost-teacher", ()), "of theirs 1.2 cannot be imported: ModuleNotFoundError"),
        (lambda: installed.teacher("their-teach", ()), "unknown teacher 'their-teach'. Did you mean their-teacher"),
    ],
)
def test_a_package_that_is_wrong_is_named(call, message, package):
    with pytest.raises(ConfigError, match=message):
        call()


def test_two_packages_with_one_name(package, command):
    install(package, "another", "[procurl.teachers]\ntheir-teacher = another:Thing\n", version="3")
    with pytest.raises(ConfigError, match="teacher their-teacher: another 3 and theirs 1.2 all have one of that name"):
        procurl.make_teacher("their-teacher", small_setting()[1])
    assert "their-teacher of another 3 is not used: another 3 and theirs 1.2" in command("list").stdout


def test_the_command_line_takes_them(package, command):
    setting = chosen_setting("their-trek")
    teacher = chosen_teacher("their-teacher", setting)
    env, space = setting.make({"pace": 3.0})
    assert (env.pace, setting.config, setting.name) == (3.0, SMALL, "their-trek")
    assert teacher.make(space, {"beta": 1.0}).beta == 1.0
    done = command("train", "their-trek", "--teacher", "their-teacher", "--set", "betta=1")
    assert "unknown option 'betta'. Did you mean beta" in done.stderr


def test_a_run_notes_package_version_and_name(package):
    env, space = procurl.make("their-trek")
    notes = class_notes(env, procurl.make_teacher("their-teacher", space))
    for part, name in (("env", "their-trek"), ("teacher", "their-teacher")):
        assert {k: notes[part][k] for k in ("package", "version", "name", "file")} == {
            "package": "theirs", "version": "1.2", "name": name, "file": "things.py",
        }  # fmt: skip


def test_another_version_is_a_change(package):
    from procurl.runs.store.classes import changed, how_to_name

    then = {"env": {"class": "Trek", "package": "theirs", "version": "1.2", "sha256": "a", "name": "their-trek"}}
    now = {"env": {**then["env"], "version": "1.3", "sha256": "b"}}
    assert changed(then, now) == ["theirs is 1.3 now, and was 1.2"] and changed(then, then) == []
    assert how_to_name("env", "Trek", then) == "--env their-trek"
    assert how_to_name("teacher", "T", {}) == "--teacher FILE.py:T"


def test_a_folder_cannot_have_a_package_imported(package, tmp_path, command):
    """Its configuration names an installed setting and teacher: that is not enough to import them."""
    import numpy as np

    from procurl.runs.provenance import describe

    env, space = small_setting()
    config = describe(env, procurl.IID(space), SMALL, (0,), 256)
    n = len(space.held_out.seed)
    scores = np.zeros((1, 1, n), np.float32)
    result = Result(
        config={**config, "setting": "their-trek", "env": {"class": "Trek"}, "teacher": {"class": "Theirs"}},
        provenance={"status": "finished", "classes": {"env": {"name": "their-trek", "file": "theirs_for_tests.py"}}},
        timing={}, seeds=np.array([0]), steps=np.array([256]), task_ret=scores, task_success=scores,
        held_out={k: np.asarray(v) for k, v in space.held_out.arrays().items()}, trace={}, params={},
    )  # fmt: skip
    for n, changes in enumerate(({}, {"provenance": {"status": "finished"}})):
        folder = dataclasses.replace(result, **changes).save(tmp_path / f"run-{n}")
        for words in (["evaluate", folder], ["watch", folder, "--out", tmp_path / "x.gif"]):
            done = command(*words)
            assert done.returncode == 1 and "an environment of its own, which procurl does not look for" in done.stderr
    assert not is_loaded()


def test_a_suite_cannot_have_a_package_imported(package):
    suite = Suite("mine", "", (Row(("their-trek",), ("iid",)),))
    with pytest.raises(
        ConfigError, match=r"their-trek is of an installed package \(theirs 1.2\), which a suite cannot ask"
    ):
        planned(suite)
    settings, teachers, own = named_on(["their-trek"], ["their-teacher", "iid"], None)
    groups = planned(SUITES["smoke"].narrowed(settings, own=settings, teachers=tuple(teachers)), own)
    assert [group.name for group in groups] == ["their-trek-their-teacher", "their-trek-iid"]
    assert own.files() == [] and not is_loaded()


def test_looking_for_names_needs_no_jax(package):
    script = "import sys; sys.path.insert(0, sys.argv[1]); from procurl.cli import main; main(['list'])\n"
    script += "print('jax' in sys.modules, 'theirs_for_tests' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(package)], capture_output=True, text=True, timeout=60)
    assert "their-trek" in done.stdout and done.stdout.splitlines()[-1] == "False False", done.stderr


def test_without_packages_nothing_is_said():
    assert installed.names("teacher", presets.TEACHERS) == {} and installed.clashes("setting", presets.SETTINGS) == []
