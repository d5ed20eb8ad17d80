"""What `procurl.devices` leaves in the environment, where JAX finds it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from procurl.devices import keep_programs, use_cores
from procurl.errors import ConfigError


@pytest.fixture
def clean(monkeypatch, tmp_path):
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_programs_are_kept_in_a_folder_of_the_users_own(clean):
    keep_programs()
    folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
    assert folder.startswith(str(clean / "cache" / "procurl"))
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    keep_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == folder  # the same every time: else nothing would be found again


@pytest.mark.parametrize("chosen", ["", "elsewhere"])
def test_the_users_own_choice_stays(clean, monkeypatch, chosen):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", chosen)
    keep_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == chosen
    assert not (clean / "cache").exists()


def test_a_home_that_cannot_be_written_to_only_costs_time(clean):
    (clean / "cache").write_text("a file where the folder should be")
    keep_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_too_late_for_other_cores():
    import jax  # noqa: F401

    with pytest.raises(ConfigError, match="first line of the script"):
        use_cores(2)


# One program in two shapes, and JAX's own; then how many came from the kept ones and how many were written.
KEEPS_PROGRAMS = """
import json, sys
from procurl.devices import keep_programs

keep_programs()
import jax

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/")[-1]))
for _ in range(int(sys.argv[1])):
    events.clear()
    jax.clear_caches()
    twice = jax.jit(lambda x: 2 * x)
    assert twice(1.0) == 2 and (twice(jax.numpy.ones(3)) == 2).all()
    print(json.dumps({event: events.count(event) for event in ("cache_hits", "cache_misses")}))
"""


def run_and_count(folder, times=1):
    """One process, in which JAX forgets its programs each time."""
    done = subprocess.run(
        [sys.executable, "-c", KEEPS_PROGRAMS, str(times)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_kept_programs_that_were_cut_are_replaced(tmp_path):
    written = run_and_count(tmp_path)[0]["cache_misses"]
    entries = sorted(tmp_path.glob("*-cache"))
    assert len(entries) == written > 3
    for i, entry in enumerate(entries[1:]):  # the first stays whole
        content = entry.read_bytes()
        entry.write_bytes(content[: i % 2 * len(content) // 2])
    replaced, kept = run_and_count(tmp_path, times=2)
    assert replaced == {"cache_hits": 1, "cache_misses": written - 1}
    assert kept == {"cache_hits": written, "cache_misses": 0}


# XLA evaluates the sums of a constant as it compiles. That takes seconds, after one of which it logs a complaint.
SLOW_TO_COMPILE = """
import numpy as np
from procurl.devices import use_device

use_device("cpu")
import jax

numbers = np.arange(120_000, dtype=np.float32)
total = jax.jit(lambda: jax.lax.reduce_window(numbers, 0.0, jax.lax.add, (16,), (1,), "SAME"))
print(float(total()[7]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("level", "complains"), [(None, False), ("0", True)])
def test_a_command_does_not_show_that_xla_compiles_slowly(level, complains):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_CPP", "JAX_COMPILATION_CACHE"))}
    if level is not None:  # the user's own choice stays
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    done = subprocess.run(
        [sys.executable, "-c", SLOW_TO_COMPILE], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.stdout == f"{sum(range(16)):.1f}\n", done.stderr
    assert ("slow_operation_alarm" in done.stderr) == complains and (complains or not done.stderr)
