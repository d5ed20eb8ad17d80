"""A user's own environment and teacher on the command line: FILE.py:NAME wherever a name can stand.

No run's folder is believed about code: what is imported is what the command line names. Names of installed packages are
in test_installed.py.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import shutil
import types

import pytest
from worlds import small_setting

import procurl
from procurl import cli
from procurl.bench.grid import command as bench_command
from procurl.bench.grid import worker
from procurl.bench.grid.cells import Cell, Group, built, cells_of
from procurl.bench.grid.own import Own, named_on
from procurl.bench.grid.suites import SUITES, find_suite
from procurl.bench.watch.own import own_view
from procurl.check.fields import kind_of
from procurl.errors import ConfigError
from procurl.runs.chosen import chosen_setting, chosen_teacher
from procurl.runs.class_origin import class_notes
from procurl.runs.store import classes

SOURCE = """
from dataclasses import dataclass
from typing import Literal, Optional

import jax
import numpy as np
import procurl
from procurl.config import param
from procurl.teachers.base import PoolTeacher
from worlds import SMALL, Walk, walk_space

tasks = walk_space()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stroll(Walk):
    pace: float = param(1.0, "how far a step goes", at_least=0)

    def moved(self, state, action):
        return self.pace * super().moved(state, action)


class Drawn(Stroll):
    def render(self, state):
        picture = np.zeros((40, 60, 3), np.uint8)
        picture[:, int(np.clip(state.x, 0, 9) * 6)] = 255
        return picture


class Smeared(Stroll):
    def render(self, state):
        return np.zeros((40, 60))


for cls in (Drawn, Smeared):
    jax.tree_util.register_dataclass(cls, ["pace"], [])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Half(PoolTeacher):
    beta: float = param(5.0, "inverse temperature", at_least=0)
    least: Optional[int] = param(None, "or nothing", static=True)
    kind: Literal["hard", "soft"] = param("soft", "a choice", static=True)
    word: str = param("plain", "any word", static=True)
    widths: tuple[int, ...] = param((3, 4), "some", static=True)


made_teacher = Half(tasks, beta=7.0)
elsewhere = Half(walk_space(pool_size=21))


def both():
    return Stroll(), tasks, SMALL


def strict(space):
    return Half(space, beta=9.0)
"""

TINY = [
    "--set", "ppo.n_steps=256", "--set", "n_envs=8", "--set", "batch_size=64", "--set", "shared=16",
    "--set", "separate=16", "--set", "epochs=2", "--set", "evaluate_every=2", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("theirs") / "my_own.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def begun(source, tmp_path_factory):
    """A run of both classes, begun on the command line."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        patch.setattr("procurl.devices.use_cores", lambda *a, **k: None)
        status = cli.main(
            [
                "train", f"{source}:Stroll", "--teacher", f"{source}:Half", "--set", "env.pace=0.5", "--set", "beta=3",
                "--set", "teacher.kind=hard", "--set", "word=odd", "--set", "least=None", "--set", "widths=5,6",
                "--steps", "512", "--out", str(folder), *TINY,
            ]
        )  # fmt: skip
    assert status == 0 and "Stroll, Half, 1 seed: return on the target" in said.getvalue()
    return folder


@pytest.fixture
def run(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "run")


@pytest.fixture
def changed(source, tmp_path):
    """The same file, edited since."""
    path = tmp_path / source.name
    path.write_text(SOURCE + "\n# a remark\n")
    return path


def own(path, teacher=True):
    return ["--env", f"{path}:Stroll", *(["--teacher", f"{path}:Half"] if teacher else [])]


# ---------------------------------------------------------------- training, and what the folder notes


def test_own_classes_are_trained_with_their_own_options(begun):
    config = json.loads((begun / "config.json").read_text())
    assert (config["setting"], config["env"]) == ("Stroll", {"class": "Stroll", "pace": 0.5})
    teacher = {"beta": 3.0, "least": None, "kind": "hard", "word": "odd"}
    assert {k: config["teacher"][k] for k in teacher} == teacher


def test_the_folder_notes_where_its_classes_came_from(begun, source):
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    notes = procurl.load_result(begun).provenance["classes"]
    assert notes == {
        "env": {"class": "Stroll", "file": "my_own.py", "sha256": digest},
        "teacher": {"class": "Half", "file": "my_own.py", "sha256": digest},
    }
    assert str(source.parent) not in "".join(p.read_text() for p in begun.glob("*.json")), "no path of this machine"


def test_procurls_own_classes_need_no_note():
    env, space = small_setting()
    redrawn = procurl.make_teacher("iid", space, redraw_every=100)
    assert class_notes(env, procurl.IID(space)) == class_notes(env, redrawn) == {}
    assert classes.as_provenance({}) == {}


def test_a_class_without_a_file_is_noted_by_name():
    written = {"__module__": "at_a_prompt"}
    assert class_notes(type("Typed", (), written)()) == {"env": {"class": "Typed"}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "betta=1"], "unknown option 'betta'. Did you mean beta or teacher.beta"),
        (["--set", "teacher.beta=-1"], "Half: beta = -1.0: expected at least 0"),
        (["--set", "env.pace=fast"], "--set env.pace=fast: expected a value of type float"),
        (["--set", "kind=mild"], "--set kind=mild: expected a value of type Literal['hard', 'soft']"),
        (["--set", "least=few"], "--set least=few: expected a value of type int | None"),
        (["--variant", "release"], "--variant release: {}:Stroll has no presets; leave it out"),
        (["--engine", "sb3"], "--engine sb3: Stroll is not a setting of procurl's; expected one of point-mass-1t"),
        (["--space", "{}:Half"], "--space {}:Half: it needs a task space itself"),
        (["--space", "{}:made_teacher"], "--space {}:made_teacher: found Half, expected a procurl.TaskSpace"),
        (["--teacher", "{}:tasks"], "--teacher {}:tasks: found TaskSpace, expected a teacher, with init, propose"),
        (["--teacher", "{}:elsewhere"], "--teacher {}:elsewhere: it was made for other tasks than those of Stroll"),
        (["--teacher", "{}:Haff"], "unknown name in my_own 'Haff'. Did you mean Half"),
        (["--teacher", "haff"], "Valid: adr, alp-gmm, currot, gradient, iid"),
        (["--teacher", "haff"], "; or one of your own, as FILE.py:NAME"),
    ],
)
def test_what_cannot_be_trained_is_said(options, message, source, command):
    given = ["--teacher", f"{source}:Half", *(text.format(source) for text in options)]
    done = command("train", f"{source}:Stroll", *given)
    assert done.returncode == 1 and message.format(source) in done.stderr, done.stderr
    assert done.stderr.startswith("procurl: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}:Half", "which tasks Half is for|Half.*is a teacher: give it with --teacher"),
        ("{}:tasks", "is a task space: expected an environment, and its tasks with --space"),
        ("{}:TINY", "is list: expected an environment, with obs_size"),
        ("{}:gym", "is a Gymnasium environment: train it with Stable-Baselines3"),
        ("{}:lonely", "which tasks lonely is for is not known: give --space MODULE:NAME or a setting"),
        ("{}:three", "a tuple of 3 was found: expected .environment, task space., with a Config after them or not"),
    ],
)
def test_what_is_no_setting_is_said(text, message, source, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(source.parent)  # whichever test came first has not imported it, if it is this one
    path = tmp_path / "others.py"
    path.write_text(
        "import gymnasium\nfrom my_own import Half, Stroll, walk_space\n"
        "TINY, one, two = [], walk_space(), walk_space()\ntasks = one\n"
        "def gym(): return gymnasium.make('CartPole-v1')\nlonely = Stroll()\ndef three(): return Stroll(), one, 3\n"
    )
    with pytest.raises(ConfigError, match=message):
        chosen_setting(text.format(path))


def test_a_setting_of_procurls_has_its_own_tasks():
    with pytest.raises(ConfigError, match="--space point-mass-2g: maze-plane has its own tasks"):
        chosen_setting("maze-plane", "point-mass-2g")


def test_functions_and_objects_can_be_named_too(source):
    setting = chosen_setting(f"{source}:both")
    env, space = setting.make({"pace": 2.0})
    assert (setting.name, setting.config.ppo.n_steps, env.pace, space.name) == ("Stroll", 256, 2.0, "Stroll")
    for name, beta in (("made_teacher", 7.0), ("strict", 9.0), ("Half", 5.0)):
        teacher = chosen_teacher(f"{source}:{name}", setting)
        made = teacher.make(space, {})
        assert made.space is space and made.beta == beta and teacher.make(space, {"beta": 1.0}).beta == 1.0
    assert chosen_teacher("iid", setting).make(space, {"redraw_every": 5}).redraw_every == 5
    assert chosen_teacher("auto", setting).name == "procurl-path", "as procurl.make_teacher has it"


def test_an_own_environment_on_the_tasks_of_a_setting_is_not_that_setting(source):
    setting = chosen_setting(f"{source}:Stroll", "point-mass-2g")
    assert setting.make({})[1].name == "Stroll", "it must not be compared with runs of point-mass-2g"
    assert chosen_setting(f"{source}:Stroll", f"{source}:tasks").make({})[1].names == ("distance", "wind")


def test_an_environment_for_worker_processes(tmp_path):
    """It learns with SAC unless it says otherwise, and is drawn by the Gymnasium environment that it makes."""
    path = tmp_path / "on_host.py"
    path.write_text("from host_probe import PaysOnHost\nfrom worlds import walk_space\nspace = walk_space()\n")
    setting = chosen_setting(f"{path}:PaysOnHost")
    assert setting.config == procurl.Config(sac=procurl.SAC())
    env, _ = setting.make({})
    with pytest.raises(ConfigError, match="what its maker.. makes has render_mode None, expected 'rgb_array'"):
        own_view(env)


def test_one_file_is_imported_once(source, changed):
    setting, again = chosen_setting(f"{source}:Stroll"), chosen_setting(f"{source}:both")
    assert setting.env_class is again.env_class
    assert chosen_setting(f"{changed}:Stroll").env_class is not setting.env_class, "it was edited"


def test_a_field_says_its_type_however_it_is_annotated(source):
    kinds = {f.name: kind_of(f) for f in _fields(source)}
    assert kinds["least"] == "int | None" and kinds["beta"] == "float"
    assert kinds["kind"] == "Literal['hard', 'soft']" and kinds["widths"].startswith("tuple[int")


def _fields(source):
    return dataclasses.fields(chosen_teacher(f"{source}:Half", chosen_setting(f"{source}:both")).classes[0])


# ---------------------------------------------------------------- going on


def test_resume_asks_for_classes_and_says_which(run, command):
    done = command("resume", run, "--steps", "512")
    assert done.returncode == 1
    assert "an environment and a teacher of its own, which procurl does not look for" in done.stderr
    assert "give --env my_own.py:Stroll --teacher my_own.py:Half" in done.stderr
    done = command("resume", run, "--env", "maze-plane", "--teacher", "iid", "--steps", "512")
    assert done.returncode == 1 and "--env maze-plane is Maze: this run was made with Stroll" in done.stderr


def test_resume_goes_on_with_the_classes_that_are_named(run, source, command):
    done = command("resume", run, *own(source), "--steps", "512", "--quiet")
    assert done.returncode == 0, done.stderr
    result = procurl.load_result(run)
    assert result.steps[-1] == 1024 and result.config["env"]["pace"] == 0.5 and result.config["teacher"]["beta"] == 3.0
    assert "earlier_sha256" not in result.provenance["classes"]["env"]


def test_a_changed_source_is_refused_and_taken_if_asked(run, source, changed, command):
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    done = command("resume", run, *own(changed), "--steps", "512")
    old, new = (hashlib.sha256(p.read_bytes()).hexdigest() for p in (source, changed))
    assert done.returncode == 1 and done.stderr.count("my_own.py has changed") == 1
    assert f"my_own.py has changed (SHA-256 {old[:12]} then, {new[:12]} now)" in done.stderr
    assert "Nothing was changed" in done.stderr and "--changed" in done.stderr
    assert before == {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    done = command("resume", run, *own(changed), "--steps", "512", "--quiet", "--changed")
    assert done.returncode == 0, done.stderr
    note = procurl.load_result(run).provenance["classes"]["teacher"]
    assert (note["sha256"], note["earlier_sha256"]) == (new, old)


def test_the_same_command_refuses_a_changed_source_too(run, changed, command):
    again = ["--teacher", f"{changed}:Half", "--steps", "1k", "--out", run]
    done = command("train", f"{changed}:Stroll", *again)
    assert done.returncode == 1 and "was begun with something else: my_own.py has changed" in done.stderr


def test_python_is_warned_of_a_changed_source(run, changed, caplog):
    """A script that holds its own classes is edited for many reasons: that is not refused."""
    from procurl.runs.chosen import Named
    from procurl.runs.provenance import rebuilt
    from procurl.runs.store.checkpoint import load_checkpoint, open_run

    found = load_checkpoint(run)
    env, teacher, _ = rebuilt(found.config, found.classes, Named(f"{changed}:Stroll", f"{changed}:Half"))
    longer = {**found.config, "steps": 1024}
    with open_run(run, longer, "extend", 0.02, notes=class_notes(env, teacher)) as folder:
        assert "earlier_sha256" in folder.classes["env"]
    assert "my_own.py has changed" in caplog.text and "goes on with what is there now" in caplog.text


def test_another_class_is_another_run(run, source, command):
    done = command("resume", run, "--env", f"{source}:Drawn", "--teacher", f"{source}:Half", "--steps", "512")
    assert done.returncode == 1 and f"--env {source}:Drawn is Drawn: this run was made with Stroll" in done.stderr
    done = command("resume", run, "--env", f"{source}:Stroll", "--teacher", "iid", "--steps", "512")
    assert done.returncode == 1 and "--teacher iid is IID: this run was made with Half" in done.stderr
    other = ["--space", "point-mass-2g", "--steps", "512"]
    done = command("resume", run, *own(source), *other)
    assert done.returncode == 1 and "cannot be made again from its configuration and what was named" in done.stderr
    assert "space.n_pool: 20 there" in done.stderr


def test_what_was_taken_before_stays_on_record():
    first, second, third = ({"env": {"class": "A", "sha256": digest}} for digest in "abc")
    notes = classes.going_on(classes.going_on(first, second), third)
    assert notes["env"] == {"class": "A", "sha256": "c", "earlier_sha256": "a b"}
    assert classes.going_on(first, first) == first and classes.going_on({}, first) == first


@pytest.mark.parametrize("said", [None, 3, {"classes": 3}, {"classes": {"env": []}}, {"classes": {"other": {}}}])
def test_notes_of_a_stranger_are_text_or_nothing(said):
    assert classes.noted(said) == {}
    mixed = {"classes": {"env": {"class": "A", "sha256": 3, "file": ["x"]}}}
    assert classes.noted(mixed) == {"env": {"class": "A"}}


# ---------------------------------------------------------------- evaluate and watch


def test_evaluate_plays_the_environment_that_is_named(begun, source, changed, command):
    done = command("evaluate", begun, "--episodes", 1)
    assert (
        done.returncode == 1 and "give --env my_own.py:Stroll (a file is imported only if you name it)" in done.stderr
    )
    assert "--teacher" not in done.stderr.partition("give ")[2].partition(" (")[0]
    done = command("evaluate", begun, "--episodes", 1, *own(source, teacher=False))
    assert done.returncode == 0 and "Stroll / Half" in done.stdout and done.stderr == ""
    done = command("evaluate", begun, "--episodes", 1, *own(changed, teacher=False))
    assert done.returncode == 0 and "procurl: my_own.py has changed" in done.stderr
    assert "the student may have learnt something else" in done.stderr


def test_watch_draws_an_environment_that_can_draw_itself(begun, source, tmp_path, command):
    out = tmp_path / "film.gif"
    done = command("watch", begun, "--out", out)
    assert done.returncode == 1 and "give --env my_own.py:Stroll" in done.stderr
    done = command("watch", begun, "--out", out, *own(source, teacher=False))
    assert done.returncode == 1 and "Stroll cannot be drawn: give it a method render(state)" in done.stderr
    run = tmp_path / "run"
    result = procurl.load_result(begun)
    for name in ("Drawn", "Smeared"):  # as if it had been trained with that class
        config = {**result.config, "env": {**result.config["env"], "class": name}}
        notes = {"classes": {**result.provenance["classes"], "env": {"class": name}}}
        changed = dataclasses.replace(result, config=config, provenance={**result.provenance, **notes})
        changed.save(run / name)
    done = command("watch", run / "Drawn", "--env", f"{source}:Drawn", "--out", out, "--episodes", 1)
    assert done.returncode == 0 and out.read_bytes()[:4] == b"GIF8", done.stderr
    done = command("watch", run / "Drawn", "--env", f"{source}:Drawn", "--out", out, "--context=2,0.1")
    assert done.returncode == 0 and "given context" in done.stdout, done.stderr
    done = command("watch", run / "Smeared", "--env", f"{source}:Smeared", "--out", out)
    assert done.returncode == 1 and "Smeared.render gives float64[40, 60]: expected a picture" in done.stderr


def test_a_run_of_a_loop_of_its_own_cannot_be_played(begun, tmp_path, command):
    result = procurl.load_result(begun)
    config = {**result.config, "config": {"loop": {"n_steps": 256}}, "env": {"class": "a loop of its own"}}
    folder = dataclasses.replace(result, config=config).save(tmp_path / "run")
    done = command("evaluate", folder)
    assert done.returncode == 1 and "was made by a loop of its own, which procurl cannot play" in done.stderr


# ---------------------------------------------------------------- sweeps and benchmarks


def test_a_sweep_of_own_classes(source, changed, tmp_path, command):
    sweep = ["sweep", f"{source}:both", "--teacher", f"{source}:Half", "--over", "teacher.beta=1,2", "--steps", "512"]
    done = command(*sweep, "--quiet", "--out", tmp_path / "sweep")
    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    point = procurl.load_result(tmp_path / "sweep" / "teacher.beta=1")
    assert point.provenance["classes"]["teacher"]["sha256"] == digest
    done = command("resume", tmp_path / "sweep", "--steps", "512")
    assert done.returncode == 1 and "give --env my_own.py:Stroll --teacher my_own.py:Half" in done.stderr
    done = command("resume", tmp_path / "sweep", "--steps", "512", *own(changed))
    assert done.returncode == 1 and "my_own.py has changed" in done.stderr
    named = ["--env", f"{source}:both", "--teacher", f"{source}:Half"]
    done = command("resume", tmp_path / "sweep", "--steps", "512", "--quiet", *named)
    assert done.returncode == 0, done.stderr
    assert procurl.load_result(tmp_path / "sweep" / "teacher.beta=2").steps[-1] == 1024


def test_own_names_in_a_benchmark(source):
    settings, teachers, own_ = named_on([f"{source}:both"], ["iid", f"{source}:Half", "plr:release"], "maze-plane")
    assert (settings, teachers) == (["both"], ["iid", "Half", "plr:release"])
    assert own_ == Own((("both", f"{source}:both"),), (("Half", f"{source}:Half"),), "maze-plane")
    assert Own.from_json(json.loads(json.dumps(own_.to_json()))) == own_
    assert named_on(None, None, None) == (None, None, Own())


@pytest.mark.parametrize(
    ("settings", "teachers", "space", "message"),
    [
        (["a.py:X", "b.py:X"], [], None, "--settings b.py:X: there is another X in this benchmark"),
        ([], ["a.py:iid"], None, "--teachers a.py:iid: there is another iid"),
        ([], ["a.py"], None, "--teachers a.py: expected FILE.py:NAME"),
        ([], ["a.py:../x"], None, "expected FILE.py:NAME"),
        (["maze-plane"], [], "a.py:tasks", "--space a.py:tasks: expected with an environment of your own"),
    ],
)
def test_names_that_a_benchmark_cannot_have(settings, teachers, space, message):
    with pytest.raises(ConfigError, match=message):
        named_on(settings, teachers, space)


@pytest.mark.parametrize("row", ['settings = ["my.py:MyEnv"]', 'settings = ["maze-plane"]\nteachers = ["my.py:T"]'])
def test_a_suite_cannot_ask_for_code(row, tmp_path):
    """It is a file, which may come from anybody."""
    (tmp_path / "mine.toml").write_text(f"[[rows]]\n{row}\n")
    with pytest.raises(ConfigError, match="a suite cannot ask for code; name it on the command line, --.*s my.py:"):
        cells_of(find_suite(str(tmp_path / "mine.toml")))


def cells_from(path, **changes):
    settings, teachers, own_ = named_on([f"{path}:both"], [f"{path}:Half", "iid"], None)
    suite = SUITES["smoke"].narrowed(settings, own=["both"], teachers=tuple(teachers), **changes)
    return cells_of(suite, own=own_), own_


def test_cells_of_own_classes(source, changed):
    cells, own_ = cells_from(source)
    assert [cell.group.name for cell in cells] == ["both-Half", "both-iid"] and cells[0].steps == 100_000
    env, teacher, config = built(cells[0].group, own_)
    assert (type(env).__name__, type(teacher).__name__, config.ppo.n_steps) == ("Stroll", "Half", 256)
    edited, _ = cells_from(changed)
    assert {c.digest for c in cells}.isdisjoint(c.digest for c in edited), "a cell of another source is another cell"
    with pytest.raises(ConfigError, match="both is not in the paper, which has no numbers for it: give --seeds and"):
        cells_of(SUITES["maze"].narrowed(["both"], own=["both"], teachers=("iid",)), own=own_)
    with pytest.raises(ConfigError, match="unknown setting 'both'"):
        built(Group("both", "iid", "paper"))


def test_a_worker_trains_the_classes_that_its_parent_was_told_of(source, tmp_path):
    cells, own_ = cells_from(source, seeds=(0,), steps=512)
    job = worker.Job.from_json(worker.Job(cells[0], tmp_path / "cell", "cpu", 0.02, own_).to_json())
    said = []
    worker._train(job, lambda **message: said.append(message))
    assert said[-1]["steps"] == 512 and Cell.from_json(cells[0].to_json()) == cells[0]
    assert procurl.load_result(tmp_path / "cell").config["teacher"]["class"] == "Half"


def test_a_file_does_not_travel_to_a_cluster(source):
    options = dict.fromkeys(("workers", "block", "retries", "address", "space"))
    args = types.SimpleNamespace(
        suite="smoke", executor="ray", settings=[f"{source}:both"], teachers=None, **options
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"my_own.py:both with --executor ray: the file is on this machine alone"):
        bench_command.run(args)
