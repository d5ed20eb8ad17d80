"""Two CPU devices, so that every test of the engine also tests spreading seeds over devices."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import procurl

DEVICES = ("host_platform_device_count", "multi_thread_eigen")
# Of the compiler, as the Makefile chose them; a worker of pytest also inherits the flags that are set below.
PASSES = " ".join(f for f in os.environ.get("XLA_FLAGS", "").split() if not any(name in f for name in DEVICES))
procurl.use_cores(2, device="cpu")

# Most of the suite's time is compilation, and many tests compile the same program: workers share a cache.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".xla-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # processes of tests compile little else


looked_at = time.process_time()  # the mappings, below


@pytest.fixture(autouse=True)
def few_programs():
    """A process may have some 65,000 memory mappings, and every compiled program takes hundreds.

    To count them takes up to 50 ms: once in a CPU second, in which few programs can be compiled.
    """
    yield
    global looked_at
    if time.process_time() - looked_at < 1:
        return
    looked_at = time.process_time()
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 50_000:
        import jax

        jax.clear_caches()


@pytest.fixture
def command(capsys, monkeypatch):
    """`procurl ...` in this process: one of its own loads JAX and traces its programs anew."""
    from procurl import cli

    monkeypatch.setattr("procurl.devices.use_cores", lambda *a, **k: None)  # JAX is already running here

    def run(*args):
        try:
            status = cli.main([str(arg) for arg in args])
        except SystemExit as end:  # of argparse
            status = end.code
        said = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=said.out, stderr=said.err)

    return run
