"""A stranger's file can be wrong, and can be malicious: it is refused, and nothing happens."""

import hashlib
import importlib.util
import io
import json
import os
import pickle
import re
import shutil
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import procurl
from procurl import cli
from procurl.bench import report
from procurl.bench.grid import suites
from procurl.bench.grid.folder import GridFolder
from procurl.bench.report import markdown, recorded
from procurl.bench.report.studies import collect
from procurl.check.text import in_one_line, printable
from procurl.errors import CheckpointError, ConfigError, ProcurlError, RunFolderError
from procurl.runs.provenance import rebuilt
from procurl.runs.store import checkpoint, disk, state
from procurl.runs.store.result import FILES

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
LATEST = Path("checkpoints") / "0000000004"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(GOLDEN / "run-1", tmp_path / "run"))


def forge(folder, name, content):
    """As a stranger would send it: with a manifest that fits."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_bytes(disk.to_json(manifest))


class Bomb:
    """Its pickle makes a folder when it is read."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return (os.mkdir, (str(self.place),))


def zipped(*entries, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def npy_header(descr, shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def evil_files(place):
    """Name -> content, none of which is data. Each is tried in the place of every file."""
    pickled = pickle.dumps(Bomb(place))
    one = npy(np.zeros(1))
    objects = npy(np.array([Bomb(place)], dtype=object), allow_pickle=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4 * 10**15]}}).encode()
    return {
        "a pickle": pickled,
        "a pickle of protocol 0": pickle.dumps(Bomb(place), protocol=0),
        "a pickle as npy": objects,
        "an npz of objects": zipped(("x.npy", objects)),
        "an npz with a pickle inside": zipped(("x.npy", pickled)),
        "zip slip": zipped(("../../evil.npy", one)),
        "zip slip, absolute": zipped((f"{place}.npy", one)),
        "zip slip, as on Windows": zipped(("..\\..\\evil.npy", one)),
        "one name twice": twice(one),
        "an npz of other files": zipped(("run.sh", b"mkdir evil")),
        "an npz by another method": zipped(("x.npy", one), method=zipfile.ZIP_LZMA),
        "a zip bomb": zip_bomb(),
        "a header of 10^15 numbers": zipped(("x.npy", npy_header("<f4", (10**15,)) + bytes(64))),
        "a header of -1 numbers": zipped(("x.npy", npy_header("<f4", (-1,)) + bytes(64))),
        "a header that is code": zipped(
            ("x.npy", b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os').mkdir('evil')  \n")
        ),
        "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
        "tensors of 10^15 numbers": struct.pack("<Q", len(header)) + header,
        "a YAML tag": f"!!python/object/apply:os.mkdir ['{place}']\n".encode(),
        "JSON of 100,000 lists": b"[" * 100_000 + b"]" * 100_000,
        "JSON of 40 lists": b"[" * 40 + b"]" * 40,
        "JSON with NaN": b'{"steps": NaN}',
        "JSON with infinity": b'{"steps": 1e999}',
        "JSON with a huge number": b'{"steps": 1' + b"0" * 4000 + b"}",
        "JSON with a name twice": b'{"steps": 1, "steps": 2}',
        "JSON of something else": b'{"name": "left-pad"}',
        "a list": b"[]",
        "an empty npz": zipped(),
        "an empty file": b"",
    }


def zip_bomb():
    """Three hundred kilobytes that want 320 megabytes of memory, and say so truly."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as entry:
        entry.write(npy_header("<f4", (80 * 2**20,)))
        for _ in range(320):
            entry.write(bytes(2**20))
    return buffer.getvalue()


def twice(content):
    with pytest.warns(UserWarning, match="Duplicate name"):
        return zipped(("x.npy", content), ("x.npy", content))


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    place = tmp_path_factory.mktemp("evil") / "was-run"
    return place, evil_files(place)


def everything(folder):
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def test_the_pickles_here_are_real(tmp_path):
    """Whoever reads one, runs it: otherwise these tests would show nothing."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "was-run")))  # noqa: S301
    assert (tmp_path / "was-run").is_dir()


HARMLESS = {("an empty npz", "trace.npz"), ("JSON of something else", "timing.json")}  # nothing there is needed


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_result_can_do_anything(name, folder, evil, tmp_path, monkeypatch):
    place, files = evil
    monkeypatch.chdir(tmp_path)
    for what, content in files.items():
        forge(folder, name, content)
        before = everything(tmp_path)
        if (what, name) in HARMLESS:
            procurl.load_result(folder)
        else:
            with pytest.raises(RunFolderError, match=re.escape(name)):
                procurl.load_result(folder)
            with pytest.raises(RunFolderError, match=re.escape(name)):
                procurl.load_policy(folder)
        assert everything(tmp_path) == before and not place.exists(), what


def test_weights_of_something_else_are_no_policy(folder):
    forge(folder, "policy.safetensors", disk.to_tensors({"left": np.zeros((2, 3)), "policy.0.w": np.zeros((2, 3))}))
    with pytest.raises(RunFolderError, match="run holds no weights of a student"):
        procurl.load_policy(folder)


@pytest.mark.parametrize("name", checkpoint.CHECKPOINT.files)
def test_no_file_of_a_checkpoint_can_do_anything(name, folder, evil, tmp_path, monkeypatch):
    place, files = evil
    monkeypatch.chdir(tmp_path)
    for what, content in files.items():
        forge(folder / LATEST, name, content)
        before = everything(tmp_path)
        if what != "an empty npz" or name != "log.npz":
            with pytest.raises(CheckpointError, match="Nothing was loaded"):
                checkpoint.load_checkpoint(folder)
        assert everything(tmp_path) == before and not place.exists(), what


@pytest.mark.parametrize("name", ["manifest.json", "checkpoints/0000000004/manifest.json"])
def test_no_manifest_can_do_anything(name, folder, evil):
    place, files = evil
    load = checkpoint.load_checkpoint if "checkpoints" in name else procurl.load_result
    for content in files.values():
        (folder / name).write_bytes(content)
        with pytest.raises(RunFolderError, match="manifest.json is damaged"):
            load(folder)
    assert not place.exists()


def test_no_state_file_can_do_anything(evil, tmp_path):
    """Of a curriculum, of a teacher, of a model of Stable-Baselines3: all are read here."""
    place, files = evil
    path = tmp_path / "state.safetensors"
    for content in files.values():
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"state.safetensors cannot be read"):
            state.read_state(path)
    assert not place.exists()
    procurl.save_state(path, {"w": np.zeros(2)}, curriculum="[" * 100_000)
    _, notes = state.read_state(path)
    with pytest.raises(CheckpointError, match="a note 'curriculum' that cannot be read: JSON that is nested"):
        state.note(path, notes, "curriculum")


@pytest.mark.parametrize("what", ["suite.toml", "grid.json", "compare.json", "compare.npz"])
def test_no_file_of_a_benchmark_can_do_anything(what, evil, tmp_path):
    place, files = evil
    path = tmp_path / what
    (tmp_path / "compare.json").write_text('{"setting": "a", "teachers": {}}')
    readers = {
        "suite.toml": lambda: suites.load_suite(path), "grid.json": lambda: GridFolder.load(tmp_path),
        "compare.json": lambda: recorded.read(path), "compare.npz": lambda: recorded.read(path.with_suffix(".json")),
    }  # fmt: skip
    fine = {"compare.json": ("JSON with", "JSON of something", "a list"), "compare.npz": ("an empty npz",)}
    for name, content in files.items():
        path.write_bytes(content)
        if name.startswith(fine.get(what, ("-",))):  # something else than a comparison, which lies about
            continue
        with pytest.raises(ProcurlError, match=re.escape(what)):
            readers[what]()
    assert not place.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows = " + "[" * 100_000, "nested too deeply|no TOML file"),
        ("x = 1" + "0" * 5000, "no TOML file"),
        ('name = "../../etc"\n[[rows]]\nsettings = ["maze-plane"]', "name = '../../etc': expected letters"),
        ('name = "/tmp/x"\n[[rows]]\nsettings = ["maze-plane"]', "name = '/tmp/x': expected letters"),
        ('[[rows]]\nsettings = ["maze-plane"]\nseeds = 1000000000000', "seeds = 1000000000000: expected at least one"),
        ("rows: !!python/object/apply:os.system ['ls']", "no TOML file"),
    ],
)
def test_suites_that_want_too_much(text, message, tmp_path):
    (tmp_path / "suite.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        suites.load_suite(tmp_path / "suite.toml")


def test_yaml_is_not_read_at_all(tmp_path, capsys):
    (tmp_path / "suite.yaml").write_text("rows: !!python/object/apply:os.system ['ls']")
    assert cli.main(["bench", str(tmp_path / "suite.yaml")]) == 1
    assert "a file of your own, which ends in .toml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "trace.npz", f"{LATEST}/log.npz"])
@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder", "socket"])
def test_only_plain_files_are_read(name, kind, folder, tmp_path):
    """A pipe would wait for ever, /dev/zero never ends, a link leads out of the folder."""
    path, outside = folder / name, tmp_path / "outside"
    shutil.move(path, outside)
    match kind:
        case "link":
            path.symlink_to(outside)
        case "pipe":
            os.mkfifo(path)
        case "device":
            try:
                os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
            except PermissionError:
                pytest.skip("only root can make a device")
        case "folder":
            path.mkdir()
        case "socket":
            bound_in(path)
    load = checkpoint.load_checkpoint if "checkpoints" in name else procurl.load_result
    outcome = in_time(lambda: load(folder))
    assert isinstance(outcome, RunFolderError), outcome
    assert f"{path.name} is a {kind}; expected a plain file" in str(outcome)


def bound_in(path):
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def in_time(call):
    """What it returns or raises. A call that waits for ever must not hang the tests."""
    outcome = []

    def caught():
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=caught, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it waits"
    return outcome[0]


@pytest.mark.parametrize("what", ["suite.toml", "grid.json", "compare.json", "state"])
def test_pipes_and_endless_devices_elsewhere(what, tmp_path):
    path = tmp_path / what
    readers = {
        "suite.toml": suites.load_suite,
        "grid.json": lambda p: GridFolder.load(p.parent),
        "compare.json": recorded.read,
        "state": state.read_state,
    }
    for make in (os.mkfifo, lambda p: os.symlink("/dev/zero", p)):
        make(path)
        outcome = in_time(lambda: readers[what](path))
        assert isinstance(outcome, ProcurlError) and "expected a plain file" in str(outcome)
        path.unlink()


def test_a_link_that_the_user_names_is_followed(tmp_path):
    path = procurl.save_state(tmp_path / "step-100.safetensors", {"w": np.ones(2)})
    (tmp_path / "latest.safetensors").symlink_to(path)
    assert state.read_state(tmp_path / "latest.safetensors")[0]["w"].tolist() == [1.0, 1.0]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("loop", "nowhere"):
        with pytest.raises(CheckpointError, match=f"{name} cannot be read"):
            state.read_state(tmp_path / name)


def test_links_in_place_of_checkpoints_are_not_followed(folder, tmp_path):
    """What is saved, renamed and removed there would be somebody else's."""
    shutil.move(folder / "checkpoints", tmp_path / "thesis")
    (folder / "checkpoints").symlink_to(tmp_path / "thesis")
    before = everything(tmp_path / "thesis")
    with pytest.raises(CheckpointError, match="checkpoints is a link"):
        checkpoint.load_checkpoint(folder)
    place = checkpoint.RunFolder(folder, {}, 0.02)

    class Log:
        iterations = 9

        def state(self):
            return {}, {}

    with pytest.raises(RunFolderError, match="checkpoints is a link"):
        place._save({}, Log())
    assert everything(tmp_path / "thesis") == before


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "letter").write_text("dear")
    (tmp_path / ".state.partial").symlink_to(tmp_path / "letter")
    with pytest.raises(RunFolderError, match="could not write"):
        procurl.save_state(tmp_path / "state", {"w": np.zeros(2)})
    assert (tmp_path / "letter").read_text() == "dear"


# --- names of strangers ---

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b]0;owned\x07\x1b[2J\n| a | $\\frac$ [red]x[/nothing] \u202eexe=1+1"


def hostile_folder(folder, setting=HOSTILE):
    config = json.loads((folder / "config.json").read_text())
    config["setting"] = setting
    config["teacher"] = {"class": HOSTILE, HOSTILE: HOSTILE}
    config["space"] |= {"names": [HOSTILE] * 3, "target": HOSTILE}
    forge(folder, "config.json", disk.to_json(config))
    provenance = json.loads((folder / "provenance.json").read_text())
    forge(folder, "provenance.json", disk.to_json({**provenance, "commit": HOSTILE, HOSTILE: HOSTILE}))
    return folder


def test_names_cannot_run_in_the_page_or_break_a_table(folder):
    collection = collect([hostile_folder(folder)])
    page = report.page(collection)
    assert page.count("</script>") == 3 and "<img" not in page and "\x1b" not in page
    tables = markdown.tables(collection)
    assert not set("\x1b\x07\u202e") & set(tables) and "<img" not in tables.replace("\\<img", "")
    for line in tables.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == len(markdown.HEADER) + 1


def test_names_cannot_drive_the_terminal(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile_folder(folder)
    for command in (["evaluate"], ["watch"], ["report"], ["bench", "status"], ["resume"]):
        cli.main([*command, str(folder)])
        shown = capsys.readouterr()
        assert not set("\x1b\x07\u202e") & set(shown.out + shown.err), command
    cells = [{"cell": {"setting": "a", "teacher": "b", "variant": "paper", "seeds": [0], "steps": 1, "digest": "0"}}]
    row = {"state": HOSTILE, "steps": 0, "total": 0, "ret": None, "error": HOSTILE}
    grid = {"format": "procurl-bench", "version": 1, "suite": HOSTILE, "cells": [{**cells[0], **row}]}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    assert cli.main(["bench", "status", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    grid["cells"][0]["cell"]["setting"] = "../../etc"
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    assert cli.main(["bench", "status", str(tmp_path)]) == 1
    assert "'../../etc': expected letters, digits" in capsys.readouterr().err


def test_pictures_stay_in_their_folder(folder, tmp_path, capsys):
    hostile_folder(folder, setting=f"../../../{HOSTILE}")
    out = tmp_path / "a" / "b" / "c" / "pictures"
    assert cli.main(["plot", str(folder), "--out", str(out)]) == 0, capsys.readouterr().err
    others = {p for p in tmp_path.rglob("*") if p.suffix in (".png", ".pdf")} - set(out.iterdir())
    assert not others and len(list(out.iterdir())) > 2
    assert "\x1b" not in capsys.readouterr().out


def test_what_is_printed():
    assert printable("a\x1b[31mb\tc\nd\x9b\u202ee\ud800 é 漢") == "a\\x1b[31mb\tc\nd\\x9b\\u202ee\\ud800 é 漢"
    assert in_one_line("a\nb\rc\u2028d") == "a b c d"


def test_brackets_in_a_title_are_no_markup(capsys):
    from procurl.cli.progress import ProgressLine

    with ProgressLine("[red]runs/[/nothing]"):
        pass
    assert "[red]runs/[/nothing]: compiling" in capsys.readouterr().err


def test_a_configuration_names_only_what_is_here(folder):
    """No name in it is imported: a class of another module, a setting that is a path, a field that is no field."""
    config = json.loads((folder / "config.json").read_text())
    for part, value, message in (
        ("teacher", {"class": "os.system", "command": "ls"}, "a teacher of its own, which procurl does not look for"),
        ("teacher", {"class": "ProCuRLTarget", "__class__": "x"}, "cannot be read"),
        ("setting", "procurl.cli", "an environment of its own, which procurl does not look for"),
        ("env", {"class": "PointMass", "__init__": 1}, "unknown option"),
        ("config", {"ppo": {"n_steps": "__import__('os')"}}, "expected a whole number"),
        ("config", [], "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message):
            rebuilt({**config, part: value})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"setting": 3}, "setting is int"),
        ("config.json", {"steps": "many"}, "steps is str; expected int"),
        ("config.json", {"seeds": [0, 0]}, "all different"),
        ("config.json", {"seeds": [0, 5]}, "its seeds are not those of config.json"),
        ("config.json", {"space": []}, "space is list; expected dict"),
        ("config.json", {"teacher": {}}, "it has no class"),
        ("provenance.json", {"status": None}, "status is NoneType"),
        ("timing.json", {"steps_per_second": "fast"}, "steps_per_second is str"),
        ("evaluations.npz", {"task_ret": np.zeros((2, 3))}, r"task_ret is float64\[2, 3\]; expected .* \[2, 3, 6\]"),
        ("evaluations.npz", {"steps": np.array(["a", "b", "c"])}, "steps is <U1"),
        ("trace.npz", {"task_context": np.zeros((2, 4, 16, 9))}, "task_context is"),
        ("trace.npz", {"started": np.zeros(7)}, "started is"),
        ("policy.safetensors", {"policy.0.w": np.zeros((1, 2))}, r"policy.0.w is float64\[1, 2\]"),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(name, change, message, folder):
    content = (folder / name).read_bytes()
    if name.endswith(".json"):
        forge(folder, name, disk.to_json({**disk.from_json(content), **change}))
    elif name.endswith(".npz"):
        forge(folder, name, disk.to_npz({**disk.from_npz(content), **change}))
    else:
        forge(folder, name, disk.to_tensors({**disk.from_tensors(content), **change}))
    with pytest.raises(RunFolderError, match=message):
        procurl.load_result(folder)


# --- the source itself ---


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLANTED = {  # by our own check, and by ruff's rule where there is one
    "import pickle\npickle.loads(b'')": "S301",
    "import marshal\nmarshal.loads(b'')": "S302",
    "eval(input())": "S307",
    "exec(input())": "S102",
    "import yaml\nyaml.load('', yaml.Loader)": "S506",
    "from joblib import load\nload('x')": None,
    "import shelve\nshelve.open('x')": None,
    "import dill": None,
    "import numpy as np\nnp.load('x', allow_pickle=True)": None,
    "import numpy as np\nnp.load('x')": None,
    "import torch\ntorch.load('x')": None,
    "import torch\ntorch.load('x', weights_only=False)": None,
    "from stable_baselines3 import PPO\nPPO.load('x')": None,
    "import stable_baselines3 as sb3\nsb3.PPO.load('x')": None,
    "import pandas as pd\npd.read_pickle('x')": None,
    "import importlib\nimportlib.import_module(config['teacher']['class'])": None,
    "from importlib.util import spec_from_file_location\nspec_from_file_location('a', notes['file'])": None,
    "from pkgutil import resolve_name\nresolve_name(config['setting'])": None,
    "from importlib.metadata import entry_points\n[p.load() for p in entry_points(group='x')]": None,
}


def test_the_source_reads_no_file_that_can_run_code():
    check = tool("check_loading")
    files = [p for folder in check.FOLDERS for p in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    assert [line for path in files for line in check.findings(path.read_text(), str(path))] == []


@pytest.mark.parametrize("source", PLANTED)
def test_the_check_finds_what_is_planted(source):
    assert tool("check_loading").findings(source, "planted.py")


def test_ruff_finds_what_is_planted(tmp_path):
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if ruff is None:
        pytest.skip("ruff is not installed")
    planted = {rule: tmp_path / f"{rule}.py" for rule in PLANTED.values() if rule}
    for source, rule in PLANTED.items():
        if rule:
            planted[rule].write_text(source + "\n")
    done = subprocess.run(
        [ruff, "check", "--no-cache", "--config", ROOT / "pyproject.toml", "--output-format", "concise", tmp_path],
        capture_output=True, text=True,
    )  # fmt: skip
    for rule, path in planted.items():
        assert re.search(rf"{path.name}:\d+:\d+: {rule} ", done.stdout), done.stdout + done.stderr


# --- Stable-Baselines3's archives ---


def test_archives_are_opened_for_those_who_trust_them_only(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    from procurl.integrations.sb3_archive import load_archive

    place = tmp_path / "was-run"
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu")
    model.bomb = Bomb(place)
    model.save(tmp_path / "model.zip")
    for trust in ({}, {"trust": False}, {"trust": "yes"}):
        with pytest.raises(CheckpointError, match=r"holds pickled objects: .*Nothing was read.* say trust=True"):
            load_archive(sb3.PPO, tmp_path / "model.zip", **trust)
    assert not place.exists()
    assert load_archive(sb3.PPO, tmp_path / "model.zip", trust=True, device="cpu").num_timesteps == 0
    assert place.exists(), "which is why"
    with pytest.raises(CheckpointError, match="is not there"):
        load_archive(sb3.PPO, tmp_path / "nowhere.zip", trust=True)


def test_a_forged_model_is_refused_before_anything_is_loaded():
    """Names and shapes that fit, but for one: nothing of it may arrive."""
    sb3 = pytest.importorskip("stable_baselines3")
    from procurl.integrations.sb3_state import load_model, model_state

    model = sb3.DQN("MlpPolicy", "CartPole-v1", buffer_size=20, learning_starts=4, train_freq=4, device="cpu")
    model.learn(12)
    good = model_state(model)
    load_model(model, good, "good")
    average = next(k for k in good if k.endswith(".exp_avg"))
    weight = next(k for k in good if k.startswith("policy.") and ".state." not in k)
    for name, value in (
        (average, np.zeros((7, 7, 7), np.float32)),
        ("policy.optimizer.state.../../x.exp_avg", np.zeros(1, np.float32)),
        ("policy.optimizer.state.99.exp_avg", np.zeros(1, np.float32)),
        ("counter.num_timesteps", np.array(np.nan)),
        ("buffer.observations", np.zeros((12, 1, 400), np.float32)),
        ("buffer.place", np.array([10**9, 0])),
        ("buffer.place", np.zeros(3, np.int64)),
    ):
        forged = {**good, weight: good[weight] + 1.0, name: value}
        with pytest.raises(CheckpointError, match="forged"):
            load_model(model, forged, "forged")
        for k, array in model_state(model).items():
            np.testing.assert_array_equal(array, good[k], err_msg=f"{name} changed {k}")


# --- network ---


@pytest.mark.kill
def test_nothing_is_sent_or_fetched(tmp_path):
    """Importing, training, saving, resuming and reporting, with every socket but local ones forbidden.

    Python's own sockets are refused at once; those of compiled libraries are looked for at the end.
    """
    script = textwrap.dedent(
        """
        import os, socket, sys
        from pathlib import Path

        def forbid(event, args):
            if event in ("socket.connect", "socket.bind", "socket.sendto") and args[0].family != socket.AF_UNIX:
                raise PermissionError(f"{event} {args[1:]}")
            if event in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
                raise PermissionError(f"{event} {args}")

        sys.addaudithook(forbid)
        sys.path.insert(0, sys.argv[2])
        import conftest
        import procurl
        from procurl import cli
        from worlds import SMALL, Walk, walk_space

        for goes_on in (False, True):
            teacher = procurl.make_teacher("iid", walk_space())
            procurl.train(Walk(), teacher, SMALL, seeds=2, steps=1024, out=sys.argv[1] + "/run",
                          callback=lambda progress: goes_on)
        assert cli.main(["report", sys.argv[1] + "/run", "-o", sys.argv[1] + "/page.html"]) == 0
        own = set()
        for path in Path("/proc/self/fd").iterdir():
            try:
                own.add(os.readlink(path))
            except FileNotFoundError:  # the one that lists them
                pass
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                assert f"socket:[{line.split()[9]}]" not in own, line
        print("silent")
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["silent"], done.stderr
