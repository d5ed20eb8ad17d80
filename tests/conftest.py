"""Two CPU devices, so that every test of the engine also tests spreading seeds over devices."""

import os
from pathlib import Path

import pytest

import procurl

DEVICES = ("host_platform_device_count", "multi_thread_eigen")
# Of the compiler, as the Makefile chose them; a worker of pytest also inherits the flags that are set below.
PASSES = " ".join(f for f in os.environ.get("XLA_FLAGS", "").split() if not any(name in f for name in DEVICES))
procurl.use_cores(2, device="cpu")

# Most of the suite's time is compilation, and many tests compile the same program: workers share a cache.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".xla-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # processes of tests compile little else


@pytest.fixture(autouse=True)
def few_programs():
    """A process may have some 65,000 memory mappings, and every compiled program takes hundreds."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 30_000:
        import jax

        jax.clear_caches()
