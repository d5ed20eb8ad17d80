"""Every strategy's iteration compiles for an H200, with many seeds: XLA once never finished one of them.

No GPU is needed, only JAX's CUDA plugin: `make test-gpu-programs` installs it in an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from procurl.presets import TEACHERS

HERE = Path(__file__).parent
SECONDS = 600  # the slowest takes a minute, and one that never ends is to fail
FAMILIES = ["point-mass-2g", "maze-plane", "minigrid"]

pytestmark = pytest.mark.skipif(
    find_spec("jax_plugins") is None, reason="JAX's CUDA plugin is not here: make test-gpu-programs"
)


def compiles(*arguments: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(HERE / "gpu_compile.py"), *arguments], capture_output=True, text=True, timeout=SECONDS
    )
    assert ran.returncode == 0 and "characters of HLO" in ran.stdout, ran.stderr[-2000:]


@pytest.mark.parametrize("teacher", TEACHERS)
def test_every_strategy_with_many_seeds(teacher):
    compiles("point-mass-1t", teacher, "128")


@pytest.mark.parametrize("setting", FAMILIES)
def test_every_setting(setting):
    compiles(setting, "procurl-target", "64")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_walker_with_sac(precision):
    compiles("bipedal-jax", "procurl-path", "5", precision)
