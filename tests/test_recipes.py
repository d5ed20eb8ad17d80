"""The recipes run: every page's commands as printed, but for fewer steps, and the programs they are about."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import procurl
from procurl.errors import RunFolderError

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs/recipes"
SLURM = ROOT / "examples/slurm"
PPO = procurl.PPO(n_steps=1024, n_envs=8, batch_size=64, shared=(8,), separate=(8,), epochs=1)
CONFIG = procurl.Config(ppo=PPO, evaluate_every=2)


def environment(**more):
    """As on a user's command line: `python` and `procurl` are those of this interpreter, the devices its own choice."""
    # W&B tells the processes below where its own service is, which writes into other folders.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_FLAGS", "JAX_PLATFORMS", "WANDB_"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"} | more


def shell(script, cwd, **more):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd, capture_output=True, text=True, timeout=900, env=environment(**more),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scripts(page):
    """The shell blocks of a page, but for those that say that they need something special."""
    blocks = re.findall(r"```sh\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return [block for block in blocks if not block.startswith("# needs")]


@pytest.fixture
def checkout(tmp_path):
    """A folder in which commands such as `python examples/...` work, and that is empty but for that."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def train(seeds, out=None, steps=4096):
    env, space = procurl.make("point-mass-2g")
    return procurl.train(env, procurl.make_teacher("iid", space), CONFIG, seeds=seeds, steps=steps, out=out)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Two blocks of seeds of one run, in folders of their own."""
    folder = tmp_path_factory.mktemp("parts")
    return folder, [train(seeds, folder / f"seeds-{seeds[0]}") for seeds in ((0, 1), (2, 3))]


# --- pages ---


def test_pages_lead_somewhere():
    pages = sorted(PAGES.glob("*.md"))
    linked = re.findall(r"\]\((\w+\.md)\)", (PAGES / "README.md").read_text())
    assert {p.name for p in pages} == {*linked, "README.md"}
    for page in pages:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("http") or (PAGES / target).exists(), f"{page.name}: {target}"
        for program in re.findall(r"\bexamples/[\w/.]+\w", text):
            assert (ROOT / program).is_file(), f"{page.name}: {program}"


@pytest.mark.slow
def test_stable_baselines3_ppo_and_sac(checkout):
    (script,) = scripts("sb3.md")
    ppo, sac = (
        shell(re.sub(r"--teacher procurl-target.*", f"--teacher procurl-target --steps {steps}", line), checkout)
        for line, steps in zip(script.strip().splitlines(), (4096, 3600), strict=True)
    )
    assert re.search(r"procurl-target: \d+ of 500 steps with long poles", ppo)
    assert re.search(r"procurl-target: return -\d+ with the heavy weight, 2 updates", sac)


@pytest.mark.slow
def test_a_cleanrl_style_loop(checkout):
    (script,) = scripts("cleanrl.md")
    assert "4096 steps: mean return" in shell(f"{script.strip()} --total-timesteps 4096", checkout)


@pytest.mark.slow
def test_tensorboard_and_wandb_offline(checkout):
    (script,) = scripts("tracking.md")
    shell(script.replace("--steps 100k", "--steps 30k"), checkout)
    assert procurl.load_result(checkout / "runs/logged").status == "finished"
    assert len(list(checkout.glob("logs/runs/logged/*/events.out.tfevents.*"))) == 3  # two seeds and their mean
    assert len(list(checkout.glob("wandb/offline-run-*/*.wandb"))) == 1


# --- sharing ---


def packed(run, archive):
    """What the page's first command does."""
    files = [p for p in run.iterdir() if p.suffix in (".json", ".npz", ".safetensors")]
    assert len(files) == 7
    with zipfile.ZipFile(archive, "w") as target:
        for file in files:
            target.write(file, file.name)


def test_a_shared_folder_is_the_same_run_and_damage_is_named(parts, tmp_path):
    folder, (first, _) = parts
    packed(folder / "seeds-0", tmp_path / "run.zip")
    zipfile.ZipFile(tmp_path / "run.zip").extractall(tmp_path / "inbox")
    there = procurl.load_result(tmp_path / "inbox")
    np.testing.assert_array_equal(there.task_ret, first.task_ret)
    assert there.config == first.config
    policy = procurl.load_policy(tmp_path / "inbox", seed=1)
    assert np.isfinite(policy.predict(np.zeros(7), deterministic=True)).all()
    told = "".join(
        (tmp_path / "inbox" / name).read_text() for name in ("provenance.json", "timing.json", "config.json")
    )
    assert str(Path.home()) not in told and str(ROOT) not in told

    file = tmp_path / "inbox/evaluations.npz"
    file.write_bytes(file.read_bytes()[:-1] + b"\0\0")
    with pytest.raises(RunFolderError, match=r"evaluations.npz is damaged: its content does not match manifest.json"):
        procurl.load_result(tmp_path / "inbox")
    assert "is damaged: its content does not match manifest.json" in (PAGES / "share.md").read_text()


@pytest.mark.slow
def test_sharing_as_the_page_does_it(parts, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/target").symlink_to(parts[0] / "seeds-0")
    pack, check = scripts("share.md")
    sent, received = shell(pack, tmp_path).split(), shell(check, tmp_path)
    assert len(sent[-1]) == 64 and sent[-1] in received
    assert "report.html" in received and (tmp_path / "report.html").is_file()
    assert "mean" in received  # evaluate's table


# --- Slurm and pre-emptible machines ---


@pytest.mark.parametrize("name", ["array", "preemptible"])
def test_slurm_scripts_are_bash(name):
    subprocess.run(["bash", "-n", str(SLURM / f"{name}.sbatch")], check=True)
    lines = (SLURM / f"{name}.sbatch").read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:])  # Slurm would not read those


def join(*args):
    return subprocess.run(
        [sys.executable, str(SLURM / "join.py"), *map(str, args)],
        capture_output=True, text=True, timeout=300, env=environment(),
    )  # fmt: skip


def test_joining_the_blocks_of_an_array(parts, tmp_path):
    folder, results = parts
    done = join(folder, tmp_path / "joined")
    assert done.returncode == 0 and "4 seeds" in done.stdout, done.stderr
    whole = procurl.load_result(tmp_path / "joined")
    assert whole.seeds.tolist() == [0, 1, 2, 3] and whole.status == "finished"
    np.testing.assert_array_equal(whole.task_ret, np.concatenate([r.task_ret for r in results]))

    cut = dataclasses.replace(results[0], provenance={**results[0].provenance, "status": "interrupted"})
    cut.save(tmp_path / "array/seeds-0")
    done = join(tmp_path / "array", tmp_path / "joined-too-early")
    assert done.returncode == 2 and "submit the array once more" in done.stderr
    assert not (tmp_path / "joined-too-early").exists()


@pytest.mark.slow
def test_the_array_of_the_page(checkout):
    (script,) = scripts("slurm.md")
    few = script.replace("STEPS=50k", "STEPS=6k")
    said = shell(few, checkout)
    assert "joined/point-mass-1t: 4 seeds" in said and (checkout / "report.html").is_file()
    whole = procurl.load_result(checkout / "joined/point-mass-1t")
    assert whole.seeds.tolist() == [0, 1, 2, 3] and whole.config["teacher"]["class"] == "ProCuRLTarget"
    again = shell(few.split("python")[0], checkout)  # submitted once more: nothing is left to do
    assert again.split("\n")[:2] == ["runs/array/seeds-0 is finished", "runs/array/seeds-2 is finished"]


def under_way(process):
    """Wait for the first line of progress after compilation."""
    for line in process.stderr:
        if "steps/s" in line:
            return
    raise AssertionError("it ended before it trained")


@pytest.mark.slow
def test_a_job_that_is_taken_away_queues_itself_again_and_goes_on(tmp_path):
    """With a real SIGTERM; `scontrol`, which only a cluster has, writes down what it was asked for."""
    (tmp_path / "bin").mkdir()
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/asked\n')
    scontrol.chmod(0o755)
    job = environment(SETTING="point-mass-1t", TEACHER="iid", STEPS="500k", SEEDS="1", OUT="run", SLURM_JOB_ID="77")
    job["PATH"] = f"{tmp_path / 'bin'}:{job['PATH']}"
    command = ["bash", str(SLURM / "preemptible.sbatch")]
    with subprocess.Popen(command, cwd=tmp_path, env=job, stderr=subprocess.PIPE, text=True) as process:
        under_way(process)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(timeout=120) == 0, rest
    assert "what was done is in run: the same command goes on" in rest
    assert (tmp_path / "asked").read_text() == "requeue 77\n"
    assert procurl.load_result(tmp_path / "run").status == "interrupted"

    done = subprocess.run(command, cwd=tmp_path, env=job, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result = procurl.load_result(tmp_path / "run")
    assert result.status == "finished" and len(result.timing["resumed_at_steps"]) == 1
    assert (tmp_path / "asked").read_text() == "requeue 77\n"  # not once more


@pytest.mark.slow
def test_the_loop_for_a_machine_that_comes_back(tmp_path):
    """The page's second script, whose first run of procurl gets a real SIGTERM."""
    once, loop = scripts("preemptible.md")
    assert once.strip() in loop
    with subprocess.Popen(
        ["bash", "-c", loop], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        under_way(process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(timeout=600) == 0, rest
    assert "interrupted; what was done" in rest and "going on after" in rest
    assert procurl.load_result(tmp_path / "runs/long").status == "finished"


# --- Optuna ---


@pytest.fixture
def recipe(monkeypatch):
    pytest.importorskip("optuna", reason="needs procurl[optuna]")
    monkeypatch.syspath_prepend(ROOT / "examples")
    import optuna_teacher

    return optuna_teacher


@pytest.mark.slow
def test_a_study_that_is_cut_goes_on_where_it_was(recipe, tmp_path, monkeypatch):
    import optuna
    from optuna.trial import TrialState

    real = optuna.Trial.report

    def cutting(trial, value, step):
        if trial.number == 1 and step == 4096:
            signal.raise_signal(signal.SIGINT)
        real(trial, value, step)

    study = {"folder": tmp_path, "steps": 8192, "config": CONFIG, "seeds": (1000,)}
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Trial, "report", cutting)
        with pytest.raises(KeyboardInterrupt):
            recipe.optimise(trials=3, **study)
    found = recipe.optimise(trials=3, **study)
    states = [t.state for t in found.trials]
    assert states.count(TrialState.COMPLETE) == 3 and states[1] == TrialState.FAIL and len(states) == 4
    assert found.trials[1].params == found.trials[2].params  # the one that was cut, before any new one
    assert len({t.params["beta"] for t in found.trials}) == 3
    runs = [procurl.load_result(p.parent) for p in tmp_path.glob("*/manifest.json")]
    assert len(runs) == 3 and sum(bool(r.timing["resumed_at_steps"]) for r in runs) == 1
    assert found.best_value == max(float(r.ret[:, 1:].mean()) for r in runs)
    assert len(recipe.optimise(trials=3, **study).trials) == 4  # nothing left to do

    hopeless = recipe.study_in(tmp_path)
    hopeless.pruner = optuna.pruners.ThresholdPruner(lower=2.0)
    with pytest.raises(optuna.TrialPruned):
        recipe.objective(hopeless.ask(), tmp_path, 8192, CONFIG, (1000,))
    stopped = [procurl.load_result(p.parent) for p in tmp_path.glob("*/manifest.json")]
    assert [r.steps[-1] for r in stopped if r.status == "stopped"] == [2048]


def test_trials_never_see_the_held_out_tasks(recipe):
    _, space = procurl.make(recipe.SETTING)
    tuning = recipe.validation_space(space)
    test_contexts = {tuple(c) for c in np.asarray(space.held_out.context).tolist()}
    assert not test_contexts & {tuple(c) for c in np.asarray(tuning.held_out.context).tolist()}
    np.testing.assert_array_equal(tuning.pool.context, space.pool.context)
    np.testing.assert_array_equal(tuning.targets.context, space.targets.context)


@pytest.mark.slow
def test_the_study_of_the_page(checkout):
    pytest.importorskip("optuna", reason="needs procurl[optuna]")
    (script,) = scripts("optuna.md")
    said = shell(script.replace("--trials 30 --steps 500_000", "--trials 2 --steps 6_000"), checkout)
    assert "2 trials; best" in said and "--set teacher.beta=" in said


# --- RLlib ---


@pytest.mark.ray
def test_rllib(checkout):
    """Another process plays, and the teacher watches, with values that were learnt from returns."""
    if not (find_spec("ray") and find_spec("tree")):  # dm-tree: Ray alone, as `procurl bench` wants it, does without
        pytest.skip("needs procurl[rllib]: make test-rllib installs it")
    said = shell(
        "python examples/rllib_cartpole.py --iterations 3 --runners 1", checkout, RAY_USAGE_STATS_ENABLED="0"
    )  # fmt: skip
    watched = [tuple(map(int, found)) for found in re.findall(r"watched (\d+) times, (\d+) fits", said)]
    assert len(watched) == 3 and watched[-1][0] >= 2 and watched[-1][1] >= 1, said
    assert re.search(r"procurl-target: \d+ of 500 steps with the long pole", said)
