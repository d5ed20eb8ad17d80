"""What `procurl.devices` leaves in the environment, where JAX finds it."""

from __future__ import annotations

import os
import stat

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
