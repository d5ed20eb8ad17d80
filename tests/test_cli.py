"""The command line as a user meets it: real messages, and real processes where signals or imports matter."""

import json
import re
import signal
import subprocess
import sys

import pytest

import procurl
from procurl import presets
from procurl.cli import options
from procurl.cli.common import seed_range, step_count
from procurl.errors import ConfigError

TINY = [
    "--set", "ppo.n_steps=256", "--set", "n_envs=8", "--set", "batch_size=64", "--set", "shared=8",
    "--set", "separate=8", "--set", "epochs=1", "--set", "evaluate_every=2",
]  # fmt: skip


# One world for all tests of this file: its programs are compiled once.
TRAIN = ["train", "point-mass-1t", "--teacher", "procurl-unif", "--seeds", 2, "--set", "teacher.beta=90", *TINY]


def run_cli(*args, timeout=300):
    return subprocess.run(
        [sys.executable, "-m", "procurl.cli", *map(str, args)], capture_output=True, text=True, timeout=timeout
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = run_cli(*TRAIN, "--steps", "2k", "--out", folder)
    assert done.returncode == 0, done.stderr
    assert "return on the target" in done.stdout and f"saved to {folder}" in done.stdout
    line = done.stderr.splitlines()[-1]
    for part in ("2,048/2,048 steps", "steps/s", "left", "return"):
        assert part in line, line
    return folder


@pytest.mark.parametrize("command", [["--help"], ["list"], ["--version"], ["train", "nonsense"]])
def test_help_and_names_do_not_import_jax(command):
    script = f"import sys; from procurl.cli import main\ntry: main({command!r})\nexcept SystemExit: pass\n"
    script += "print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_import_procurl_does_not_import_jax():
    script = "import procurl, sys; dir(procurl); print('jax' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_list_names_everything(command):
    done = command("list")
    for name in [*procurl.SETTINGS, *procurl.TEACHERS]:
        assert name in done.stdout
    assert set(presets.SETTINGS) == set(procurl.SETTINGS) and set(presets.TEACHERS) == set(procurl.TEACHERS)


def test_train_help_documents_every_field(command):
    done = command("train", "--help")
    assert "Adam's step size (default 0.0003)" in done.stdout
    assert "teacher.pairing" in done.stdout and "env.noise" in done.stdout


def test_train_writes_what_was_asked_for(run_folder):
    config = json.loads((run_folder / "config.json").read_text())
    assert config["teacher"]["beta"] == 90.0 and config["config"]["ppo"]["shared"] == [8]
    result = procurl.load_result(run_folder)
    assert result.ret.shape[0] == 2 and result.steps[-1] == 2048
    assert result.timing["teacher_share_timed_alone"] is None, "nobody waits for that in a short run"


def test_evaluate_prints_a_return_per_task(run_folder, command):
    done = command("evaluate", run_folder, "--episodes", 2)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert "gate_position" in rows[0] and [cell.strip() for cell in rows[2].split("|")[1:4]] == [
        "0.900",
        "0.500",
        "3.500",
    ]
    assert re.search(r"mean over tasks: \d\.\d{3} \+- \d\.\d{3}", done.stdout)


def test_plot_draws_curves_and_curricula(run_folder, tmp_path, command):
    done = command("plot", run_folder.parent, "--out", tmp_path, "--band", "ci", "--format", "pdf")
    assert done.returncode == 0, done.stderr
    plain = {f"point-mass-1t-{kind}.pdf" for kind in ("curves", "curriculum", "distance")}
    printed = {
        f"{name}.{kind}" for name in ("figure-2", "profiles", "point-mass-1t-figure-3") for kind in ("png", "pdf")
    }
    assert {p.name for p in tmp_path.iterdir()} == plain | printed
    assert all(p.stat().st_size > 5000 for p in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "point-mas-1t"], "unknown setting 'point-mas-1t'. Did you mean point-mass-1t"),
        (["train", "point-mass-1t", "--teacher", "idd"], "Did you mean iid"),
        (["train", "point-mass-1t", "--set", "betta=1"], "unknown option 'betta'. Did you mean beta"),
        (["train", "point-mass-1t", "--set", "beta"], "expected NAME=VALUE"),
        (["train", "point-mass-1t", "--set", "beta=high"], "--set beta=high: expected a value of type float"),
        (["train", "point-mass-1t", "--teacher", "adr", "--set", "start=0,a"], "expected a value of type tuple[float"),
        (["train", "point-mass-1t", "--teacher", "adr", "--set", "start=0,8"], "(0.0, 8.0), expected a context, 3 num"),
        (["train", "point-mass-1t", "--set", "pairing=mean"], "--set pairing=mean: expected a value of type Literal"),
        (["train", "point-mass-1t", "--set", "similarity=x"], "cannot be given on the command line"),
        (["train", "point-mass-1t", "--set", "ppo.n_envs=7"], "not divisible by ppo.n_envs = 7"),
        (["train", "point-mass-1t", "--variant", "papr"], "Did you mean paper"),
        (["evaluate", "/nowhere"], "/nowhere is not a folder"),
        (["plot", "."], "is no run folder and holds none"),
    ],
)
def test_mistakes_get_one_clear_line(args, message, command):
    done = command(*args)
    assert done.returncode == 1 and message in done.stderr
    assert done.stderr.startswith("procurl: ") and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["train", "point-mass-1t", "--teachr", "iid"],
            "unrecognized arguments: --teachr iid. Did you mean --teacher?",
        ),
        (["train", "point-mass-1t", "--step=1k", "--sedes", "2"], "--sedes 2. Did you mean --seeds?"),
        (["report", "runs", "--markdwn=x.md", "--outt", "y"], "Did you mean --markdown and --out?"),
        (["evaluate", "runs", "--qqqqqq"], "unrecognized arguments: --qqqqqq\n"),
        (["list", "everything"], "unrecognized arguments: everything\n"),
    ],
)
def test_an_option_that_a_command_does_not_know(args, message, command):
    done = command(*args)
    assert done.returncode == 2 and message in done.stderr
    assert f"procurl {args[0]}: error: " in done.stderr, "the usage shown is that of the command"


def test_python_m_procurl_is_procurl():
    done = subprocess.run([sys.executable, "-m", "procurl", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"procurl {procurl.__version__}\n", done.stderr
    done = subprocess.run([sys.executable, "-m", "procurl", "trian"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "usage: procurl " in done.stderr and "Did you mean train?" in done.stderr


def test_a_folder_with_a_run_is_refused(run_folder, command):
    before = (run_folder / "manifest.json").read_bytes()
    done = command("train", "maze-plane", "--steps", "1G", "--out", run_folder)
    assert done.returncode == 2 and "not a number of steps" in done.stderr
    done = command("train", "maze-plane", "--steps", "900M", "--out", run_folder)
    assert done.returncode == 1 and "holds another run; nothing was changed" in done.stderr
    assert "setting: 'point-mass-1t' there, 'maze-plane' here" in done.stderr
    assert (run_folder / "manifest.json").read_bytes() == before


@pytest.mark.slow
def test_ctrl_c_ends_cleanly(tmp_path):
    command = [sys.executable, "-m", "procurl.cli", *map(str, TRAIN), "--steps", "900M"]
    with subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "steps/s" in line:  # training is under way
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert "what was done is in" in rest and "Traceback" not in rest
    assert procurl.load_result(tmp_path / "run").status == "interrupted"


@pytest.mark.kill
def test_sigterm_saves_and_resume_goes_on(tmp_path, run_folder, command):
    """As a cluster stops a job and somebody takes it up again."""
    train = [sys.executable, "-m", "procurl.cli", *map(str, TRAIN), "--steps", "1M"]
    with subprocess.Popen([*train, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "steps/s" in line:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert "the same command goes on" in rest and "Traceback" not in rest
    done = run_cli("resume", run_folder, "--steps", "1k")  # a finished one, further
    assert done.returncode == 0 and "going on after 2,048 steps" in done.stderr, done.stderr
    assert procurl.load_result(run_folder).steps[-1] == 3072
    done = command("resume", run_folder)
    assert done.returncode == 1 and "it is finished" in done.stderr
    done = command("resume", tmp_path / "nowhere")
    assert done.returncode == 1 and "holds no checkpoint" in done.stderr and not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("text", "number"), [("5000", 5000), ("10k", 10_000), ("2.5M", 2_500_000), ("1_000", 1000)])
def test_step_counts(text, number):
    assert step_count(text) == number


def test_seed_ranges():
    assert seed_range("3") == range(3) and seed_range("8-15") == range(8, 16)
    for bad in ("0", "5-2", "x"):
        with pytest.raises(Exception, match="expected"):
            seed_range(bad)


def test_ambiguous_names_ask_for_the_section(monkeypatch):
    from procurl.runs.chosen import chosen_setting, chosen_teacher

    real = options.option_tables
    monkeypatch.setattr(options, "option_tables", lambda s, t: {**real(s, t), "other": [procurl.PPO]})
    setting = chosen_setting("point-mass-1t")
    with pytest.raises(ConfigError, match="not unique, expected ppo.lr or other.lr"):
        options.sort_options(["lr=1"], setting, chosen_teacher("iid", setting))


def test_the_progress_line_redraws_on_a_terminal(monkeypatch):
    import io

    import numpy as np
    from rich.console import Console

    from procurl.cli.progress import ProgressLine
    from procurl.runs.log import Progress

    screen = io.StringIO()
    line = ProgressLine("a run")
    line.console = Console(file=screen, force_terminal=True, width=200)
    with line:
        line(Progress(5120, 10240, np.array([0.25, 0.75]), 1234.5, 3661.0, 0.042))
    text = screen.getvalue()
    assert "1:01:01 left" in text and "return 0.500" in text and "teacher 4.2 % (timed alone)" in text
