"""Whatever a user may get wrong, row by row: what is done, and the message that it must give.

A message says what was given and what was expected. Nothing is written or changed on disk, and nothing begins to train:
a row that is accepted after all fails at once.
"""

import dataclasses
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import procurl
from procurl import cli
from procurl.check.fields import documented, kind_of
from procurl.config import PPO, SAC, Config
from procurl.errors import ConfigError, ProcurlError, RunFolderError
from procurl.runs.provenance import describe
from procurl.runs.store import disk
from procurl.runs.store.result import RUN, Result
from procurl.runs.store.state import named
from procurl.students import nets
from procurl.targets import Point

NAN, INF = float("nan"), float("inf")


def own_space(**changed):
    arguments = {"low": [0.0, -1.0], "high": [4.0, 1.0], "names": ["width", "angle"], "target": [3.0, 0.5]}
    return procurl.task_space(**{**arguments, "pool_size": 20, "n_targets": 3, "n_held_out": 2, **changed})


def small_result(env, teacher, seeds=(0, 1)):
    """A run as it lies on disk, without the training."""
    n, held_out = len(seeds), 2
    params = nets.init_params(jax.random.key(0), env.obs_size, env.action, (4,), (4,))
    return Result(
        config=describe(env, teacher, Config(ppo=PPO(n_steps=256, batch_size=64)), tuple(seeds), 512),
        provenance={"status": "finished"},
        timing={},
        seeds=np.array(seeds),
        steps=np.array([0, 512]),
        task_ret=np.zeros((n, 2, held_out), np.float32),
        task_success=np.zeros((n, 2, held_out), np.float32),
        held_out={k: np.asarray(v)[:held_out] for k, v in teacher.space.held_out.arrays().items()},
        trace={},
        params={name: np.stack([x] * n) for name, x in named(params).items()},
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with what the rows need: a run, an empty folder, a file, somebody else's folder, and suites."""
    root = tmp_path_factory.mktemp("world")
    env, space = procurl.make("point-mass-1t")
    iid = procurl.make_teacher("iid", space)
    small_result(env, iid).save(root / "run")
    (root / "empty").mkdir()
    (root / "afile").write_text("hello")
    (root / "foreign").mkdir()
    (root / "foreign" / "notes.txt").write_text("mine")
    for name, text in SUITES.items():
        (root / f"{name}.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return SimpleNamespace(root=root, env=env, space=space, iid=iid, own=own_space(), run=root / "run")


def tree(folder):
    """Everything below a folder, to the byte."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.fixture
def unchanged(world, monkeypatch):
    """Run in the world's folder, where nothing may change and nothing may begin."""

    def begins(*args, **kwargs):
        raise AssertionError("it was accepted, and began")

    monkeypatch.chdir(world.root)
    monkeypatch.setattr("procurl.runs.train.engine_for", begins)
    monkeypatch.setattr("procurl.bench.grid.runner.run_grid", begins)
    monkeypatch.setattr("procurl.bench.theory.comparison.compare", begins)
    before, handler = tree(world.root), signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)  # `procurl bench` sets its own
    assert tree(world.root) == before, "something was written"


# --- the command line ---

SUITES = {
    "not-toml": "rows = = 1",
    "twice": 'summary = "a"\nsummary = "b"',
    "binary": b"\xff\xfe\x00",
    "no-rows": 'summary = "nothing"',
    "unknown-key": 'sumary = "x"',
    "wrong-kind": "summary = 3",
    "row-key": '[[rows]]\nsettings = ["maze-1t"]\nteacher = ["iid"]',
    "row-settings": '[[rows]]\nteachers = ["iid"]',
    "row-steps": '[[rows]]\nsettings = ["maze-1t"]\nsteps = "many"',
    "row-seeds": '[[rows]]\nsettings = ["maze-1t"]\nseeds = [1, 1]',
    "row-many-seeds": '[[rows]]\nsettings = ["maze-1t"]\nseeds = 100_000_000_000',
    "row-zero": '[[rows]]\nsettings = ["maze-1t"]\nblock = 0',
    "row-teacher": '[[rows]]\nsettings = ["maze-1t"]\nteachers = ["idd"]',
    "row-empty": "[[rows]]\nsettings = []",
    "tiny": '[[rows]]\nsettings = ["maze-1t"]\nteachers = ["iid"]\nseeds = 1\nsteps = 1000',
}

# What is typed, and what must be in the message. Exit status 2: argparse could not read it; 1: everything else.
USAGE = [
    ("", "the following arguments are required: COMMAND"),
    ("trian", "invalid choice: 'trian' .* Did you mean train?"),
    ("train", "the following arguments are required: SETTING"),
    ("list everything", "unrecognized arguments: everything"),
    ("train maze-1t --steps 0", "'0' is less than one step: expected e.g. 5000, 10k or 1M"),
    ("train maze-1t --steps 0.2", "'0.2' is less than one step"),
    ("train maze-1t --steps -1", "'-1' is not a number of steps"),
    ("train maze-1t --steps 1e400", "'1e400' is not a number of steps: expected e.g. 5000"),
    ("train maze-1t --steps abc", "'abc' is not a number of steps"),
    ("train maze-1t --steps " + "9" * 400, r"'9{40}\.\.\.' is not a number of steps"),
    ("train maze-1t --steps ٣", "is not a number of steps"),
    ("train maze-1t --seeds 0", "'0' names no seed: expected at least one"),
    ("train maze-1t --seeds=-1", "'-1' is not a number of seeds"),
    ("train maze-1t --seeds 5-2", "'5-2' names no seed"),
    ("train maze-1t --seeds 1,1", "'1,1' is not a number of seeds: expected e.g. 8, or 8-15"),
    ("train maze-1t --seeds 99999999999", "at most 65,536; for more, make several runs"),
    ("train maze-1t --seeds 4294967295-4294967296", "seed = 4294967296: expected at least 0 and at most 4294967295"),
    ("train maze-1t --device tpu", r"invalid choice: 'tpu' \(choose from '?cpu'?, '?gpu'?\)"),
    ("train maze-1t --engine jaxx", "invalid choice: 'jaxx' .* Did you mean jax"),
    ("train maze-1t --out ''", "'' is an empty name: expected a file or folder"),
    ("train maze-1t --workers two", "'two' is not a whole number: expected e.g. 3"),
    ("resume", "the following arguments are required: RUN"),
    ("resume run --from x", "'x' is not a whole number"),
    ("resume run --steps -5", "'-5' is not a number of steps"),
    ("evaluate run --episodes 1.5", "'1.5' is not a whole number"),
    ("plot run --band std", "invalid choice: 'std'"),
    ("plot run --format svg", "invalid choice: 'svg'"),
    ("watch run --seed x", "'x' is not a whole number"),
    ("watch run --fps fast", "invalid float value: 'fast'"),
    ("watch run --context -2,1,0", "write --context=-2,1,0"),
    ("bench smoke --executor slurm", r"invalid choice: 'slurm' \(choose from '?local'?, '?ray'?\)"),
    ("bench smoke --seeds 0", "'0' names no seed"),
    ("bench smoke --seeds 4294967295-4294967296", "at most 4294967295"),
]
REFUSED = [
    ("train ''", "unknown setting ''. Valid: bipedal, bipedal-jax, maze-1g"),
    ("train point-mas-1t", "unknown setting 'point-mas-1t'. Did you mean point-mass-1t"),
    ("train maze-1t --teacher idd", "unknown teacher 'idd'. Did you mean iid"),
    ("train maze-1t --variant relase", "unknown variant 'relase'. Did you mean release"),
    ("train maze-1t --set betta=1", "unknown option 'betta'. Did you mean beta"),
    ("train maze-1t --set beta", "--set beta: expected NAME=VALUE, e.g. teacher.beta=130"),
    ("train maze-1t --set =3", "unknown option ''"),
    ("train maze-1t --set beta=high", "--set beta=high: expected a value of type float"),
    ("train maze-1t --set beta=nan", "beta = nan: expected at least 0"),
    ("train maze-1t --set beta=inf", "beta = inf: expected a number of at most 1e.30"),
    ("train maze-1t --set beta=1 --set teacher.beta=2", "--set teacher.beta: given twice; expected once"),
    ("train maze-1t --set epochs=", "--set epochs=: expected a value of type int"),
    ("train maze-1t --set epochs=2.5", "--set epochs=2.5: expected a value of type int"),
    ("train maze-1t --set watch_after_update=yes", "expected a value of type bool"),
    ("train maze-1t --set n_envs=0", "ppo.n_envs = 0: expected at least 1"),
    ("train maze-1t --set n_envs=7", "not divisible by ppo.n_envs = 7: choose n_steps as a multiple"),
    ("train maze-1t --set batch_size=1", "ppo.batch_size = 1: expected at least 2"),
    ("train maze-1t --set gamma=2", "ppo.gamma = 2.0: expected at least 0 and at most 1"),
    ("train maze-1t --set lr=inf", "ppo.lr = inf: expected a number of at most 1e.30"),
    ("train maze-1t --set shared=0", "ppo.shared, a layer's width = 0: expected at least 1"),
    ("train maze-1t --set shared=a", r"--set shared=a: expected a value of type tuple\[int"),
    ("train maze-1t --set evaluate_every=0", "evaluate_every = 0: expected at least 1"),
    ("train maze-1t --set stride=-1", "env.stride = -1.0: expected at least 0"),
    ("train maze-1t --set env.max_steps=0", "env.max_steps = 0: expected at least 1"),
    ("train maze-1t --teacher plr --set redraw_every=5", "unknown option 'redraw_every'"),
    ("train maze-1t --teacher iid --set redraw_every=0", "redraw_every = 0: expected at least 1"),
    ("train maze-1t --teacher currot --set n_particles=1000000", "n_particles = 1000000: .* at most 5000"),
    ("train maze-1t --teacher gradient --set max_steps_per_stage=3000000000", "at most 2147483647"),
    ("train maze-1t --teacher gradient --set threshold=nan", "threshold = nan: expected a number"),
    ("train maze-1t --teacher iid --workers 2", "workers = 2: Maze is played in JAX, without worker processes"),
    ("train maze-1t --teacher iid --workers 0", "workers = 0: expected at least 1"),
    ("train maze-1t --teacher iid --engine sb3 --fresh", "--fresh, --strict and --workers: not with --engine sb3"),
    ("train maze-1t --teacher iid --log print", "unknown log 'print'. .*Valid: tensorboard, wandb"),
    ("train maze-1t --teacher iid --out afile", "cannot use afile as a run folder: File exists"),
    ("train maze-1t --teacher iid --out afile/run", "cannot use afile/run as a run folder: Not a directory"),
    ("train maze-1t --teacher iid --out foreign", r"foreign is not empty \(it holds notes.txt\); nothing was changed"),
    ("train maze-1t --teacher iid --out run", "run already holds a run, and no checkpoint to go on from"),
    ("resume nowhere", "nowhere holds no checkpoint: expected a run folder"),
    ("resume afile", "afile holds no checkpoint"),
    ("resume run", "run holds no checkpoint"),
    ("evaluate nowhere", "nowhere is not a folder; expected a procurl-run written by procurl"),
    ("evaluate empty", "empty has no manifest.json: it is not a complete procurl-run"),
    ("evaluate run --episodes 0", "episodes = 0: expected at least 1"),
    ("evaluate run --episodes 100000000000", "episodes = 100000000000: expected at least 1 and at most 1000000"),
    ("plot empty", "empty is no run folder and holds none"),
    ("plot run --out afile", "cannot write to the folder afile: File exists"),
    ("report nowhere", "nowhere is not there; expected a run folder"),
    ("report empty", "nothing to report: no finished run"),
    ("report afile", "afile cannot be read"),
    ("report run -o empty", "could not write empty: Is a directory; choose another file"),
    ("report run -o afile/page.html", "could not write afile/page.html: Not a directory|File exists"),
    ("watch empty", "empty has no manifest.json"),
    ("watch run --tasks hard", "unknown choice of tasks 'hard'. Did you mean hardest"),
    ("watch run --context 1,2", r"context has shape \(2,\): expected \(3,\), which is \(gate_position"),
    ("watch run --context a,b,c", "--context=a,b,c: expected numbers with commas between them"),
    ("watch run --context 100,2,3", r"gate_position = 100 lies outside \[-4, 4\]"),
    ("watch run --context nan,2,3", r"gate_position = nan lies outside \[-4, 4\]"),
    ("watch run --context 1,2,3 --tasks random", "tasks = random beside contexts: expected one of the two"),
    ("watch run --seed 9", r"seed 9 is not in run: it holds the seeds \[0, 1\]"),
    ("watch run --episodes 99", "99 episodes side by side: expected 1 to 2"),
    ("watch run --out a.avi", "a.avi: expected a name that ends in .gif or .mp4"),
    ("watch run --episodes 1 --out afile/a.gif", "cannot write to the folder afile: File exists"),
    ("watch run --frames 0", "frames = 0: expected at least 2"),
    ("watch run --fps nan", "fps = nan: expected more than 0"),
    ("theory --seeds 0 --out new", "--seeds = 0: expected at least 1"),
    ("theory --out afile", "cannot write to the folder afile: File exists"),
    ("theory --page empty", "--page empty: this is a folder; expected the name of a file"),
    ("theory --page x.md --seeds 3", "--page: expected without --seeds"),
    ("bench smok", "unknown suite 'smok'. Did you mean smoke"),
    ("bench smoke --workers 0", "--workers 0: expected at least 1"),
    ("bench smoke --retries -1", "--retries -1: expected at least 0"),
    ("bench smoke --block 0", "--block 0: expected at least 1"),
    ("bench smoke --settings maze", "unknown setting of the suite smoke 'maze'. Did you mean maze-plane"),
    ("bench smoke --teachers iid iid", "is in the suite smoke twice: expected once"),
    ("bench smoke --teachers iid:papr", "unknown variant 'papr'. Did you mean paper"),
    ("bench smoke --address here", "--address: expected with --executor ray only"),
    ("bench smoke folder", "expected with `procurl bench status` only"),
    ("bench status", "there is no benchmark in runs/: expected `procurl bench status DIR`"),
    ("bench status empty", "empty holds no benchmark"),
    ("bench status afile", "afile holds no benchmark: expected a folder that `procurl bench` wrote"),
    ("bench nowhere.toml", "cannot read the suite: .*nowhere.toml.*No such file"),
    ("bench not-toml.toml", "not-toml.toml is no TOML file"),
    ("bench twice.toml", "twice.toml is no TOML file"),
    ("bench binary.toml", "binary.toml is no TOML file"),
    ("bench no-rows.toml", r"no-rows.toml has no rows: expected \[\[rows\]\]"),
    ("bench unknown-key.toml", "unknown-key.toml: unknown name 'sumary'. Did you mean summary"),
    ("bench wrong-kind.toml", "wrong-kind.toml: summary = 3: expected str"),
    ("bench row-key.toml", "row-key.toml, row 1: unknown name 'teacher'. Did you mean teachers"),
    ("bench row-settings.toml", r"row-settings.toml, row 1: expected settings = \[...\]"),
    ("bench row-steps.toml", "row-steps.toml, row 1: steps = 'many': expected int"),
    ("bench row-seeds.toml", r"row-seeds.toml, row 1: seeds = \(1, 1\): expected at least one seed, all different"),
    ("bench row-many-seeds.toml", "row-many-seeds.toml, row 1: seeds = 100000000000: .* at most 65,536"),
    ("bench row-zero.toml", "row-zero.toml, row 1: block = 0: expected at least 1"),
    ("bench row-teacher.toml", "unknown teacher 'idd'. Did you mean iid"),
    ("bench row-empty.toml", "row-empty.toml, row 1: settings is empty"),
    ("bench tiny.toml --device cpu --out afile", "cannot use afile for a benchmark: File exists"),
    ("bench tiny.toml --device cpu --out foreign", r"foreign is not empty and holds no benchmark"),
]


@pytest.mark.parametrize(
    ("typed", "status", "message"), [(t, 2, m) for t, m in USAGE] + [(t, 1, m) for t, m in REFUSED]
)
def test_the_command_line_refuses(typed, status, message, unchanged, capsys, monkeypatch):
    monkeypatch.setattr("procurl.devices.use_cores", lambda *args, **kwargs: None)  # JAX is already running here
    try:
        given = cli.main(shlex.split(typed))
    except SystemExit as usage:
        given = usage.code
    error = capsys.readouterr().err
    assert given == status and re.search(message, error), error
    assert "Traceback" not in error and len(re.findall("^procurl[ a-z]*: ", error, re.MULTILINE)) == 1


@pytest.mark.parametrize("name", ["config.json", "manifest.json"])
def test_a_file_that_may_not_be_read(name, world, monkeypatch):
    opened = os.open

    def locked(path, *args, **options):
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", locked)  # a test may run as root, who reads everything
    with pytest.raises(RunFolderError, match=f"run/{name} cannot be read: Permission denied"):
        procurl.load_result(world.run)


def test_a_device_that_is_not_there(tmp_path):
    command = [
        sys.executable,
        "-m",
        "procurl.cli",
        "train",
        "maze-1t",
        "--teacher",
        "iid",
        "--device",
        "gpu",
        "--steps",
        "1",
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and "device = 'gpu': JAX finds a cpu alone; install" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "run").exists()


# --- the library ---


def train(w, **changed):
    plan = {"env": w.env, "teacher": w.iid, "config": None, "out": w.root / "new", **changed}
    return procurl.train(plan.pop("env"), plan.pop("teacher"), plan.pop("config"), **plan)


def teacher(w, name, **fields):
    return procurl.make_teacher(name, w.space, **fields)


def recorded(w, name="iid", **changed):
    curriculum = procurl.Curriculum(procurl.make_teacher(name, w.own), every=3, unit="episodes")
    curriculum.record(**{"task": curriculum.next(), "ret": 1.0, "length": 5, **changed})


def watched(w, value):
    procurl.Curriculum(procurl.make_teacher("procurl-unif", w.own), every=3, unit="episodes").observe(value=value)


def evaluated(w, episodes=1, tasks=None, params=None):
    params = {"policy": []} if params is None else params
    return procurl.evaluate(w.env, params, tasks or w.space.held_out, jax.random.key(0), episodes)


CALLS = [
    # training
    (lambda w: train(w, steps=0), "steps = 0: expected at least 1"),
    (lambda w: train(w, steps=NAN), "steps = nan: expected a whole number"),
    (lambda w: train(w, steps=INF), "steps = inf: expected a whole number"),
    (lambda w: train(w, steps="3"), "steps = '3': expected a whole number"),
    (lambda w: train(w, steps=True), "steps = True: expected a whole number"),
    (lambda w: train(w, steps=1.5), "steps = 1.5: expected a whole number"),
    (lambda w: train(w, steps=10**30), "steps = 10+: expected at least 1 and at most"),
    (lambda w: train(w, seeds=0), "seeds = 0: expected at least one seed"),
    (lambda w: train(w, seeds=[]), r"seeds = \[\]: expected at least one seed"),
    (lambda w: train(w, seeds=[1, 1]), r"seeds = \[1, 1\]: expected at least one seed, all different"),
    (lambda w: train(w, seeds=[-1]), "seed = -1: expected at least 0"),
    (lambda w: train(w, seeds=[2**32]), "seed = 4294967296: .* at most 4294967295"),
    (lambda w: train(w, seeds="3"), r"seeds = '3': expected how many, e.g. 3, or which"),
    (lambda w: train(w, seeds=None), "seeds = None: expected how many"),
    (lambda w: train(w, seeds=[0.5]), "seed = 0.5: expected a whole number"),
    (lambda w: train(w, seeds=[True]), "seed = True: expected a whole number"),
    (lambda w: train(w, seeds=10**11), "seeds = 100000000000: .* at most 65,536"),
    (lambda w: train(w, teacher="iid"), "teacher = 'iid': expected a teacher, e.g. procurl.make_teacher"),
    (lambda w: train(w, teacher=procurl.IID), "teacher = <class .*IID'>: expected a teacher"),
    (lambda w: train(w, env="maze-1t"), "env = 'maze-1t': expected an environment, e.g. the first of procurl.make"),
    (lambda w: train(w, config=PPO()), r"config = PPO\(.*expected procurl.Config"),
    (lambda w: train(w, config={}), "config = {}: expected procurl.Config"),
    (lambda w: train(w, workers=2), "workers = 2: PointMass is played in JAX"),
    (lambda w: train(w, callback=3), "callback = 3: expected a function of one argument"),
    (lambda w: train(w, resume="yes"), "resume = 'yes': expected 'auto', 'extend', 'never'"),
    (lambda w: train(w, resume=True), "resume = True: expected 'auto'"),
    (lambda w: train(w, save_share="much"), "save_share = 'much': expected a share of the time"),
    (lambda w: train(w, save_share=0), "save_share = 0: expected a share"),
    (lambda w: train(w, out=3), "out = 3: expected the name of a file or folder"),
    (lambda w: train(w, out=""), "out = '': expected the name"),
    (lambda w: train(w, teacher=procurl.make_teacher("iid", w.own)), r"obs_size says float32\[7\]"),
    # settings, teachers, presets
    (lambda w: procurl.make("maze"), "unknown setting 'maze'. Did you mean maze-"),
    (lambda w: procurl.make(3), "unknown setting '3'"),
    (lambda w: procurl.make("maze-1t", strid=1.0), "unknown option of Maze 'strid'. Did you mean stride"),
    (lambda w: procurl.make("point-mass-1t", noise=-1.0), "env.noise = -1.0: expected at least 0"),
    (lambda w: procurl.make("point-mass-1t", noise="a"), "env.noise = 'a': expected a number"),
    (lambda w: procurl.make("point-mass-1t", max_steps=2.5), "env.max_steps = 2.5: expected a whole number"),
    (lambda w: teacher(w, "procurl-traget"), "Did you mean procurl-target"),
    (lambda w: teacher(w, 3), "unknown teacher '3'"),
    (lambda w: procurl.make_teacher("iid", "maze-1t"), "space = 'maze-1t': expected a task space"),
    (lambda w: teacher(w, "iid", beta=3), "unknown option of IID 'beta': there is none"),
    (lambda w: teacher(w, "iid", setting="nowhere"), "unknown setting 'nowhere'"),
    (lambda w: teacher(w, "iid", variant=3), "unknown variant '3'"),
    (lambda w: teacher(w, "plr", redraw_every=5), "plr remembers its tasks; a new pool is for iid"),
    (lambda w: teacher(w, "procurl-target", beta="3"), "beta = '3': expected a number"),
    (lambda w: teacher(w, "procurl-target", beta=True), "beta = True: expected a number"),
    (lambda w: teacher(w, "procurl-target", b=None), "b = None: expected a value of type float"),
    (lambda w: teacher(w, "procurl-target", beta=1e39), r"beta = 1e\+39: expected a number of at most 1e\+30"),
    (lambda w: teacher(w, "procurl-target", n_targets=2.5), "n_targets = 2.5: expected a whole number"),
    (lambda w: teacher(w, "procurl-target", n_targets=10**6), "the space holds 400 targets: use at most 400"),
    (lambda w: teacher(w, "procurl-target", similarity=3), "similarity = 3, expected a function"),
    (lambda w: teacher(w, "procurl-target", length_scale=1e-40), "length_scale = 1e-40: .* at least 1e-30"),
    (lambda w: teacher(w, "procurl-target", resample_targets="no"), "resample_targets = 'no': expected True or False"),
    (lambda w: teacher(w, "plr", rho=2.0), "rho = 2.0, expected a share between 0 and 1"),
    (lambda w: teacher(w, "plr", score="gae"), "score = 'gae', expected 'abs_gae', 'signed_gae', 'positive_gae'"),
    (lambda w: teacher(w, "spdl", target="all"), "target = 'all', expected 'mu' or 'uniform'"),
    (lambda w: teacher(w, "spdl", bandwidth=0.0), "bandwidth = 0.0, expected a positive number"),
    (lambda w: teacher(w, "currot", epsilon=-1.0), "epsilon = -1.0, expected a positive number"),
    (lambda w: teacher(w, "currot", update_after=400), "update_after = 400, expected at most half of n_particles"),
    (lambda w: teacher(w, "gradient", n_stages=3 * 10**9), "n_stages = 3000000000: .* at most 10000"),
    (lambda w: procurl.preset("maze", "paper"), "unknown setting 'maze'"),
    (lambda w: procurl.preset("maze-1t", "papers"), "Did you mean paper"),
    # configurations
    (lambda w: PPO(n_steps="3"), "ppo.n_steps = '3': expected a whole number"),
    (lambda w: PPO(n_steps=True), "ppo.n_steps = True: expected a whole number"),
    (lambda w: PPO(n_steps=2.5), "ppo.n_steps = 2.5: expected a whole number"),
    (lambda w: PPO(n_steps=100), "ppo.n_steps = 100 is not divisible by ppo.n_envs = 16"),
    (lambda w: PPO(lr=None), "ppo.lr = None: expected a number"),
    (lambda w: PPO(lr=-1), "ppo.lr = -1: expected at least 0"),
    (lambda w: PPO(clip=NAN), "ppo.clip = nan: expected at least 0"),
    (lambda w: PPO(shared=64), r"ppo.shared = 64: expected widths of layers, e.g. \(64, 64\)"),
    (lambda w: PPO(shared="64"), "ppo.shared = '64': expected widths of layers"),
    (lambda w: PPO(shared=(2.5,)), "ppo.shared, a layer's width = 2.5: expected a whole number"),
    (lambda w: SAC(tau=2.0), "sac.tau = 2.0: expected at least 0 and at most 1"),
    (lambda w: SAC(entropy=0.0), "sac.entropy = 0.0: expected a positive number"),
    (lambda w: SAC(capacity=10), "sac.capacity = 10: expected at least n_steps = 2000"),
    (lambda w: SAC(target_entropy=NAN), "sac.target_entropy = nan: expected a number"),
    (lambda w: SAC(learn_entropy="yes"), "sac.learn_entropy = 'yes': expected True or False"),
    (lambda w: Config(ppo={"n_steps": 5}), r"ppo = {'n_steps': 5}: expected procurl.PPO"),
    (lambda w: Config(sac=PPO()), r"sac = PPO\(.*expected procurl.SAC"),
    (lambda w: Config(evaluation_episodes=10**12), "evaluation_episodes = 10+: .* at most 10000"),
    # task spaces
    (lambda w: own_space(low=["a", 0]), r"low = \['a', 0\]: expected one number per dimension"),
    (lambda w: own_space(low=[NAN, 0]), "expected as many finite numbers in each"),
    (lambda w: own_space(low=[-1e31, 0]), r"low = \[-1e\+31, 0.0\]: expected numbers of at most 1e\+30"),
    (lambda w: own_space(low=[], high=[], names=[]), "low and high are empty: expected at least one dimension"),
    (lambda w: own_space(names="ab"), "names = 'ab': expected a list of names"),
    (lambda w: own_space(names=["width", ""]), "expected 2 different ones"),
    (lambda w: own_space(pool_size="3"), "pool_size = '3': expected a whole number"),
    (lambda w: own_space(pool_size=10**12), "pool_size = 10+: expected at least 1 and at most 4194304"),
    (lambda w: own_space(n_targets=0), "n_targets = 0: expected at least 1"),
    (lambda w: own_space(seed=-1), "seed = -1: expected at least 0"),
    (lambda w: own_space(seed="a"), "seed = 'a': expected a whole number"),
    (lambda w: own_space(target=[]), r"target has shape \(0,\): expected contexts of 2 numbers"),
    (lambda w: own_space(target=[INF, 0]), r"width = inf lies outside \[0, 4\]"),
    (lambda w: own_space(target=[9, 0]), "widen the bounds, or clip them"),
    (lambda w: own_space(target={"width": 3}), "expected a context, an array of contexts, a function"),
    (lambda w: own_space(target=lambda: 3), r"expected a function sampler\(rng, n\)"),
    (lambda w: own_space(target=lambda rng, n: np.full((n, 2), NAN)), "what it draws: width = nan lies outside"),
    (lambda w: own_space(target=[(0, [3, 0.5]), (0, [1, 0])]), "expected positive numbers"),
    (lambda w: own_space(target=Point((NAN, 0.0))), "targets task 0: width = nan lies outside"),
    (lambda w: own_space(pool=[]), r"pool has shape \(0,\): expected contexts of 2 numbers"),
    (lambda w: own_space(pool=[[1.0, NAN]]), "pool: angle = nan lies outside"),
    (lambda w: own_space(value_range=3), r"value_range = 3: expected \(V_min, V_max\)"),
    (lambda w: own_space(value_range=(1, 0)), r"value_range = \(1, 0\): .* V_min < V_max"),
    (lambda w: own_space(value_range=(0, 1e39)), "value_range = "),
    (lambda w: own_space(value_range=(1e8, 1e8 + 1)), "different in 32 bits"),
    (lambda w: own_space(values=3), "values = 3: expected a dictionary"),
    (lambda w: own_space(values={"width": ["x"]}), r"values\['width'\] = \['x'\]: expected the numbers"),
    (lambda w: own_space(values={"widht": [1]}), "Did you mean width"),
    (lambda w: procurl.check_space(3), "space = 3: expected a task space"),
    (lambda w: procurl.check_teacher(3), "teacher = 3: expected a teacher"),
    (lambda w: procurl.check_env(3, w.space), "env = 3: expected an environment"),
    # a loop of one's own
    (lambda w: procurl.Curriculum("iid"), "teacher = 'iid': expected a teacher"),
    (lambda w: procurl.Curriculum(w.iid, every=0), "every = 0: expected at least 1"),
    (lambda w: procurl.Curriculum(w.iid, every=10**12), "every = 10+: .* at most 10000000"),
    (lambda w: procurl.Curriculum(w.iid, every="5"), "every = '5': expected a whole number"),
    (lambda w: procurl.Curriculum(w.iid, n_envs=2.5), "n_envs = 2.5: expected a whole number"),
    (lambda w: procurl.Curriculum(w.iid, seed=-1), "seed = -1: expected at least 0"),
    (lambda w: procurl.Curriculum(w.iid, unit="hours"), "unit = 'hours': expected 'steps' or 'episodes'"),
    (lambda w: recorded(w, ret=NAN), "ret = nan of an episode .*diverged"),
    (lambda w: recorded(w, ret="a"), "ret = 'a': expected a number"),
    (lambda w: recorded(w, length=0), "length = 0: expected the number of steps of the whole episode"),
    (lambda w: recorded(w, length="a"), "length = 'a': expected the number of steps"),
    (lambda w: recorded(w, length=2.5), "length = 2.5: expected the number of steps"),
    (lambda w: recorded(w, task=3), r"task = 3: expected one task that next\(\) handed out"),
    (lambda w: recorded(w, task=w.own.pool), r"expected one task that next\(\) handed out"),
    (lambda w: recorded(w, "plr"), "PLR scores tasks by advantages"),
    (lambda w: recorded(w, "plr", advantage=INF), "advantage = inf of an episode .*diverged"),
    (lambda w: watched(w, None), r"ProCuRLUnif asks for the student's values: call observe\(value=...\)"),
    (lambda w: watched(w, 3), "value = 3: expected a function of tasks"),
    (lambda w: watched(w, lambda tasks: "a"), "value gave no numbers for 20 tasks"),
    (lambda w: watched(w, lambda tasks: np.zeros(3)), r"value returned shape \(3,\) for 20 tasks"),
    (lambda w: procurl.ReturnRegressor(3), "space = 3: expected a task space"),
    (lambda w: procurl.ReturnRegressor(w.own, every=2), "every = 2: expected at least 5"),
    (lambda w: procurl.ReturnRegressor(w.own, hidden=3), "hidden = 3: expected widths of layers"),
    (lambda w: procurl.ReturnRegressor(w.own, lr=INF), "lr = inf: expected a number"),
    (
        lambda w: procurl.ReturnRegressor(w.own).record([1.0, 0.0], NAN),
        "ret = nan in the context .*expected a finite return",
    ),
    (lambda w: procurl.ReturnRegressor(w.own).record([1.0], 1.0), r"context = \[1.0\]: expected 2 finite numbers"),
    (lambda w: procurl.ReturnRegressor(w.own).record([NAN, 0.0], 1.0), "expected 2 finite numbers"),
    (lambda w: procurl.ReturnRegressor(w.own).record("a", 1.0), "context = 'a': expected 2 numbers"),
    (lambda w: procurl.ReturnRegressor(w.own).fit(), "0 episodes since the last fit: expected at least 5"),
    (lambda w: procurl.use_cores(2), "must come before the first use of JAX"),
    # evaluating and loading
    (lambda w: evaluated(w, episodes=0), "episodes = 0: expected at least 1"),
    (lambda w: evaluated(w, episodes=1.5), "episodes = 1.5: expected a whole number"),
    (lambda w: evaluated(w, episodes=10**9), "episodes = 1000000000: .* at most 10000"),
    (lambda w: evaluated(w, tasks=3), "tasks = 3: expected a procurl.Task of many"),
    (lambda w: evaluated(w, params=procurl.load_result(w.run).params), "params: expected the layers of one student"),
    (lambda w: procurl.load_result(3), "path = 3: expected the name"),
    (lambda w: procurl.load_result("afile"), "afile is not a folder"),
    (lambda w: procurl.load_result("foreign"), "foreign has no manifest.json"),
    (lambda w: procurl.load_policy("run", seed=9), r"seed 9 is not in run: it holds the seeds \[0, 1\]"),
    (lambda w: procurl.load_policy("run", seed=True), "seed True is not in run"),
    (lambda w: procurl.load_policy("run").predict([1, 2]), r"observation of shape \(2,\): expected \(7,\)"),
    (lambda w: procurl.load_policy("run").predict("a"), "observation 'a': expected numbers"),
    (lambda w: procurl.load_policy("run").predict([NAN] * 7), "NaN or infinity"),
    (lambda w: procurl.load_state("afile", {}), "afile cannot be read"),
    (lambda w: procurl.save_state("afile/x", {"a": jnp.zeros(2)}), "could not write afile/x: Not a directory"),
    (lambda w: procurl.save_state("x", {"a": "text"}), "a = 'text': expected arrays of numbers in a state"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message for _, message in CALLS])
def test_the_library_refuses(call, message, world, unchanged):
    with pytest.raises(ProcurlError, match=message):
        call(world)


@pytest.mark.parametrize("name", sorted(procurl.TEACHERS))
def test_every_number_of_a_strategy_is_checked(name, world):
    for f in documented(procurl.TEACHERS[name]):
        if kind_of(f).startswith(("int", "float")):
            for value in ("3", True, NAN, 10**39, *([[1]] if f.metadata["static"] else [])):
                with pytest.raises(ProcurlError, match=f"{f.name} = "):
                    procurl.TEACHERS[name](world.own, **{f.name: value})


@pytest.mark.parametrize(
    ("cores", "device", "message"),
    [
        (0, None, "cores = 0: expected at least 1"),
        ("all", None, "cores = 'all': expected a whole number"),
        (1, "tpu", "device = 'tpu': expected cpu or gpu"),
    ],
)
def test_processors_that_cannot_be(cores, device, message, monkeypatch):
    monkeypatch.delitem(sys.modules, "jax")  # as at the beginning of a script
    before = dict(os.environ)
    with pytest.raises(ProcurlError, match=message):
        procurl.use_cores(cores, device)
    assert dict(os.environ) == before


def test_environments_and_callbacks_that_do_not_fit(world):
    gymnasium = pytest.importorskip("gymnasium")
    from procurl.integrations.gymnasium import TaskEnv

    cartpole = gymnasium.make("CartPole-v1")
    for call, message in [
        (lambda: TaskEnv(cartpole, world.own, default=[1.0]), r"context has shape \(1,\): expected \(2,\)"),
        (lambda: TaskEnv(cartpole, world.own, default=[9.0, 0.0]), r"width = 9 lies outside \[0, 4\]"),
        (lambda: TaskEnv(cartpole, world.own, default="a"), "context = 'a': expected 2 numbers"),
        (lambda: TaskEnv(cartpole, world.own).reset(), "reset without a task"),
        (lambda: TaskEnv(cartpole, world.own).reset(options={"contxt": [1, 0]}), "Did you mean context"),
        (lambda: TaskEnv(cartpole, world.own).set_next_task([1, 0], "x"), "task_seed = 'x': expected an integer"),
    ]:
        with pytest.raises(ProcurlError, match=message):
            call()


# --- result files: whole and unaltered by their digests, and still not what they should be ---


def forged(folder, file, change):
    """Change a file of a run, and the manifest with it, as something else that writes such folders might."""
    readers = {".json": json.loads, ".npz": disk.from_npz, ".safetensors": disk.from_tensors}
    writers = {".json": disk.to_json, ".npz": disk.to_npz, ".safetensors": disk.to_tensors}
    path = folder / file
    data = change(readers[path.suffix](path.read_bytes()))
    path.write_bytes(data if isinstance(data, bytes) else writers[path.suffix](data))
    if file != disk.MANIFEST:
        manifest = json.loads((folder / disk.MANIFEST).read_bytes())
        manifest["sha256"][file] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / disk.MANIFEST).write_bytes(disk.to_json(manifest))


def without(name):
    return lambda data: {k: v for k, v in data.items() if k != name}


def changed(name, change):
    return lambda data: {**data, name: change(data[name])}


FILES = [
    ("manifest.json", changed("version", lambda v: v + 1), "a newer version of procurl.* of version 2, and this"),
    ("manifest.json", changed("version", lambda v: v - 1), "version 0; .* Use the procurl that wrote it"),
    ("manifest.json", changed("format", lambda _: "other"), "says format 'other'"),
    ("manifest.json", without("sha256"), "manifest.json is damaged"),
    ("manifest.json", changed("sha256", without("trace.npz")), "lacks trace.npz: it is incomplete"),
    ("manifest.json", lambda _: b"{}", "manifest.json is damaged"),
    ("config.json", without("seeds"), "config.json is not as procurl writes it: it has no seeds"),
    ("config.json", lambda _: [1, 2], "config.json is not as procurl writes it: it is list; expected dict"),
    ("config.json", lambda _: b"not json", "config.json cannot be read"),
    ("config.json", changed("seeds", lambda _: [5, 6]), "evaluations.npz .*its seeds are not those of config.json"),
    ("provenance.json", without("status"), "provenance.json .*it has no status"),
    ("evaluations.npz", without("task_ret"), "evaluations.npz .*it has no task_ret"),
    ("evaluations.npz", without("held_out_context"), "evaluations.npz .*it has no held_out_context"),
    ("evaluations.npz", changed("task_ret", lambda x: x[:1]), r"task_ret is float32\[1, 2, 2\]; .*\[2, 2, 2\]"),
    ("evaluations.npz", changed("steps", lambda x: x[None]), r"steps is int64\[1, 2\]; .*\[any\]"),
    ("evaluations.npz", lambda _: b"PK", "evaluations.npz cannot be read"),
    ("policy.safetensors", changed("policy.0.w", lambda x: x[0]), r"policy.0.w is float32\[4, 4\]; .*\[2, 4\]"),
    ("policy.safetensors", lambda _: b"\x00" * 20, "policy.safetensors cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "change", "message"), FILES, ids=[f"{file} {m}" for file, _, m in FILES])
def test_a_result_that_is_none_is_refused(file, change, message, world, tmp_path):
    small_result(world.env, world.iid).save(tmp_path / "run")
    forged(tmp_path / "run", file, change)
    before = tree(tmp_path)
    for load in (procurl.load_result, procurl.load_policy):
        with pytest.raises(ProcurlError, match=message):
            load(tmp_path / "run")
    assert tree(tmp_path) == before


def test_the_run_of_these_tests_is_sound(world):
    """What the rows above change is loaded without a word when it is not changed."""
    result = procurl.load_result(world.run)
    assert result.ret.shape == (2, 2) and RUN.version == 1
    assert procurl.load_policy(world.run, seed=1).predict(np.zeros(7)).shape == (2,)
    forged(world.run, "config.json", lambda data: data)
    procurl.load_result(world.run)


def test_numbers_of_numpy_and_lists_are_taken_as_pythons():
    config = PPO(n_steps=np.int64(256), batch_size=np.int32(64), lr=np.float32(0.5), shared=[8, np.int64(4)])
    assert config == PPO(n_steps=256, batch_size=64, lr=0.5, shared=(8, 4))
    assert json.dumps(dataclasses.asdict(config)) and hash(config)
    assert {type(x) for x in config.shared} == {int} and type(config.lr) is float


ENTRIES = {
    "make": lambda w: procurl.make("maze-plane"),
    "task_space": lambda w: own_space(),
    "train": lambda w: procurl.train(w.env, w.iid, steps=64),
    "evaluate": lambda w: procurl.evaluate(w.env, {"policy": []}, w.space.held_out, jax.random.key(0)),
    "Curriculum": lambda w: procurl.Curriculum(w.iid),
    "check_space": lambda w: procurl.check_space(w.space),
    "check_env": lambda w: procurl.check_env(w.env, w.space),
    "check_teacher": lambda w: procurl.check_teacher(w.iid),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_64_bits_are_refused_by_name(entry, world):
    """Deeper inside they end in a TypeError of a loop, or in another curriculum."""
    with (
        jax.enable_x64(True),
        pytest.raises(ConfigError, match=r"jax_enable_x64 is on \(set by the program\).* expected 32.* Unset JAX_EN"),
    ):
        ENTRIES[entry](world)


@pytest.mark.parametrize(
    "command",
    [
        "check mine.py:space",
        pytest.param("train point-mass-1t --steps 64 --device cpu --out run", marks=pytest.mark.slow),
    ],
)
def test_64_bits_are_refused_on_the_command_line(command, tmp_path):
    (tmp_path / "mine.py").write_text("import procurl\n\nspace = procurl.make('point-mass-1t')[1]\n")
    done = subprocess.run(
        [sys.executable, "-m", "procurl.cli", *command.split()],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "JAX_ENABLE_X64": "true"},
    )  # fmt: skip
    assert done.returncode == 1 and "jax_enable_x64 is on (JAX_ENABLE_X64=true in the environment)" in done.stderr
    assert not (tmp_path / "run").exists()
