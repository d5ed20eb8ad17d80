"""Which processors a run uses, and where compiled programs are kept. JAX reads both once, when it is imported.

The library never edits the environment by itself: the command line and the benchmarks call these functions, and so
may a script, in its first lines.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import sys
import warnings
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from procurl.check.numbers import whole
from procurl.errors import ConfigError


def use_cores(cores: int | None = None, device: str | None = None) -> None:
    """One XLA device per core, each single-threaded: for small networks that is the fastest way to use a CPU.

    Seeds spread over the devices. `cores` defaults to all that this process may use; `device` is "cpu" or "gpu"
    (None: JAX's own choice). Flags that the user has set already are left as they are.
    """
    if "jax" in sys.modules:
        raise ConfigError("use_cores must come before the first use of JAX: make it the first line of the script")
    if device not in (None, "cpu", "gpu"):
        raise ConfigError(f"device = {device!r}: expected cpu or gpu")
    n = available_cores() if cores is None else whole("cores", cores, 1)
    if device is not None:
        os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda,cpu"}[device]  # callbacks run on the CPU
    given = os.environ.get("XLA_FLAGS", "")
    wanted = {
        "--xla_force_host_platform_device_count": str(n),
        "--xla_cpu_multi_thread_eigen": "false",
    }
    added = [f"{flag}={value}" for flag, value in wanted.items() if flag not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()


def use_device(device: str | None, cores: int | None = None) -> None:
    """For commands: `use_cores`, without XLA's remarks, and an error if a GPU was asked for that is not there.

    XLA logs slow compilation as an error, which on a busy machine says nothing about the program. Real failures reach
    Python as exceptions, and a crash is still reported. TF_CPP_MIN_LOG_LEVEL=0 brings everything back.
    """
    use_cores(cores, device=device)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    require_device(device)


def keep_programs() -> None:
    """Keep compiled programs in the user's cache folder: the second run of a kind then starts within seconds.

    The folder is private to the user, since its content is executed, and there is one for each kind of processor, since
    programs are compiled for one. JAX_COMPILATION_CACHE_DIR names another folder; empty, it turns this off.
    """
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # dozens of small programs add up
    drop_cut_programs()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "procurl" / f"programs-{hashlib.sha256(_processor().encode()).hexdigest()[:8]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return  # the home folder cannot be written to: every run compiles for itself
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)


UNREADABLE = "Error reading persistent compilation cache entry for '"  # JAX's warning; the program's name follows


def drop_cut_programs() -> None:
    """From now on, a kept program that JAX cannot read is removed, so that a new one can take its place.

    A kill or a full disk may cut off the file that JAX is writing. JAX then warns, compiles, and leaves the file as it
    is, so that every later run would compile again. The warning comes before the new program is written: that is the
    moment to remove the damaged one.
    """
    show = warnings.showwarning

    def drop(message: Warning | str, *details: Any, **more: Any) -> None:
        found = re.match(f"{UNREADABLE}(.+?)'", str(message))
        cut = [entry for entry in _kept(found[1]) if _is_cut(entry)] if found else []
        for entry in cut:
            with suppress(OSError):  # another process was faster, or the folder is read-only
                entry.unlink()
        if not cut:
            show(message, *details, **more)

    warnings.filterwarnings("always", UNREADABLE)
    warnings.showwarning = drop


def _kept(program: str) -> list[Path]:
    """The files of all kept programs of one name: they differ in shapes, options and devices."""
    import jax

    config: Any = jax.config
    return list(Path(config.jax_compilation_cache_dir).glob(f"{glob.escape(program)}-*-cache"))


def _is_cut(entry: Path) -> bool:
    """Whether a kept program cannot be unpacked.

    With zstandard installed JAX uses another format, in which all count as cut: programs of that name are then compiled
    again.
    """
    try:
        return not zlib.decompress(entry.read_bytes())
    except zlib.error:
        return True
    except OSError:
        return False


def _processor() -> str:
    """The processor's name and features, as far as the system tells."""
    facts = cpu_facts("model name", "flags", "Features")
    return "\n".join(sorted(set(facts))) or f"{platform.machine()} {platform.processor()}"


def cpu_facts(*names: str) -> list[str]:
    """The lines of these names in Linux's description of the processors; none elsewhere."""
    try:
        return [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(names)]
    except OSError:
        return []


def require_device(device: str | None) -> None:
    """Refuse to run without the GPU that was asked for: JAX falls back to the CPU in silence, or fails at length."""
    import jax

    try:
        found = jax.default_backend()
    except RuntimeError as error:
        raise ConfigError(f"JAX finds no device to compute on: {str(error).splitlines()[0]}") from error
    if device == "gpu" and found != "gpu":
        raise ConfigError(f"device = 'gpu': JAX finds a {found} alone; install a JAX for CUDA, or leave the device out")


def require_32_bits() -> None:
    """Refuse JAX's 64-bit mode: it draws other random numbers, and the carries of loops would change their types."""
    import jax

    config: Any = jax.config
    if config.jax_enable_x64:
        given = os.environ.get("JAX_ENABLE_X64")
        where = "set by the program" if given is None else f"JAX_ENABLE_X64={given} in the environment"
        raise ConfigError(
            f"jax_enable_x64 is on ({where}): JAX computes in 64 bits; expected 32, in which procurl computes. Unset "
            f"JAX_ENABLE_X64, or call jax.config.update('jax_enable_x64', False) first; code of your own that needs 64 "
            f"bits can have them within `with jax.enable_x64(True):`"
        )


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
