"""The README's code and commands work as printed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PASSES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_ten_lines_run_as_printed(tmp_path):
    """But for fewer steps."""
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len(code.strip().splitlines()) <= 12
    done = subprocess.run(
        [sys.executable, "-c", code.replace("steps=50_000", "steps=10_000")], cwd=tmp_path, capture_output=True,
        text=True, timeout=400, env={**os.environ, "XLA_FLAGS": PASSES},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/first/manifest.json").is_file()
    assert "[    0 10240]" in done.stdout


PLAIN = """
import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

def make_env():
    return gymnasium.make("CartPole-v1")

env = make_vec_env(make_env, n_envs=8)
model = PPO("MlpPolicy", env, n_steps=256)
model.learn(100_000)
"""


@pytest.mark.browser  # with the other pages
def test_the_stable_baselines3_script_changes_ten_lines_at_most_and_runs(tmp_path):
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    plain, curriculum = ({line for line in text.splitlines() if line.strip()} for text in (PLAIN, code))
    assert len(curriculum - plain) <= 10 and len(plain - curriculum) <= 10
    few = code.replace("learn(100_000,", "learn(4096,") + "\nprint(curriculum.updates, model.num_timesteps)"
    done = subprocess.run(
        [sys.executable, "-c", few], cwd=tmp_path, capture_output=True, text=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["2", "4096"]


@pytest.mark.slow
def test_the_commands_run_as_printed(tmp_path):
    """Word for word, but for fewer steps and seeds."""
    commands = re.findall(r"^procurl (?:train|evaluate|plot|report) .*$", README, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        words = shlex.split(command.replace("--steps 1M", "--steps 6k").replace("--seeds 8", "--seeds 2"))
        done = subprocess.run(
            [sys.executable, "-m", "procurl.cli", *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert (tmp_path / "pictures/point-mass-1t-curves.png").is_file() and (tmp_path / "report.html").is_file()


def test_every_link_and_picture_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README)) - {"and"}:
        assert f"\n{target}:" in makefile, target


@pytest.mark.slow
def test_the_demo_runs_end_to_end(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py"), "--seeds", "2", "--steps", "6k", "--out", str(tmp_path / "d")],
        capture_output=True, text=True, timeout=600, env={k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "| procurl-target" in done.stdout and (tmp_path / "d/report.html").is_file()
    assert len(list((tmp_path / "d").glob("*.png"))) == 3
