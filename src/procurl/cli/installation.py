"""What an installation is made of: versions, extras, the machine, environment variables, and what JAX makes of them.

Every finding is ok, a note or a problem. Nothing here imports JAX: what it says comes from a process of its own.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from procurl import __version__
from procurl.devices import available_cores

ROOM_NEEDED, ROOM_WANTED = 50e6, 1e9  # bytes of disk
MEMORY_WANTED = 2e9
FOR_DEVELOPERS = ("dev", "browser", "release")  # extras that users do without
CUDA_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


class Line(NamedTuple):
    section: str
    name: str
    status: str  # ok, note or problem
    text: str


# --- versions ---------------------------------------------------------------------------------------------------------


def requirements() -> list[tuple[str, str, str]]:
    """(package, lowest version or "", extra or "") of everything that procurl asks for."""
    try:
        given = metadata.requires("procurl") or []
    except metadata.PackageNotFoundError:
        return []
    rows = []
    for text in given:
        package = re.match(r"[\w.-]+(\[[\w,-]+\])?", text)
        lowest = re.search(r">=\s*([\w.]+)", text.split(";")[0])
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", text)
        if package:
            rows.append((package[0], lowest[1] if lowest else "", extra[1] if extra else ""))
    return rows


def versions() -> Iterator[Line]:
    section = "Versions"
    python = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Line(section, "python", "problem" if old else "ok", f"{python}{', expected 3.11 or newer' if old else ''}")
    yield Line(section, "procurl", "ok", f"{__version__}, on {platform.system()} {platform.machine()}")
    needed = [row for row in requirements() if not row[2]]
    if not needed:
        yield Line(section, "package", "note", "procurl is not installed as a package: its requirements are unknown")
    for package, lowest, _ in [*needed, ("jaxlib", "", "")]:
        there = installed(package)
        if there is None:
            yield Line(section, package, "problem", f"not installed: pip install '{package}>={lowest or '0'}'")
        elif lowest and is_older(there, lowest):
            yield Line(section, package, "problem", f"{there}, expected {lowest} or newer: pip install -U {package}")
        else:
            yield Line(section, package, "ok", there)


def extras() -> Iterator[Line]:
    """Which optional parts are there, and how to add the others."""
    by_extra: dict[str, list[tuple[str, str]]] = {}
    for package, lowest, extra in requirements():
        if extra and extra not in FOR_DEVELOPERS and not package.startswith("procurl["):
            by_extra.setdefault(extra, []).append((package.split("[")[0], lowest))
    for extra, packages in by_extra.items():
        there = {package: installed(package) for package, _ in packages}
        missing = [package for package, version in there.items() if version is None]
        old = [
            f"{p} {there[p]}, expected {lowest}" for p, lowest in packages if there[p] and is_older(there[p], lowest)
        ]
        how = f"pip install 'procurl[{extra}]'"
        if old:
            yield Line("Extras", extra, "problem", f"{'; '.join(old)} or newer: {how}")
        elif missing:
            yield Line("Extras", extra, "note", f"without {', '.join(missing)}; {how} adds it")
        else:
            yield Line("Extras", extra, "ok", ", ".join(f"{package} {version}" for package, version in there.items()))


def installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_older(version: str | None, lowest: str) -> bool:
    """By the numbers at the front: 0.10.2 is newer than 0.8."""

    def numbers(text: str) -> list[int]:
        leading = re.match(r"\d+(\.\d+)*", text)
        parts = [int(part) for part in leading[0].split(".")] if leading else []
        return parts + [0] * (4 - len(parts))

    return numbers(version or "") < numbers(lowest)


# --- the machine ------------------------------------------------------------------------------------------------------


def machine() -> Iterator[Line]:
    section = "Machine"
    yield Line(section, "cores", "ok", f"{available_cores()} that this process may use")
    memory = memory_limit()
    if memory is not None:
        scarce = memory < MEMORY_WANTED
        yield Line(section, "memory", "note" if scarce else "ok", f"{memory / 1e9:.1f} GB{' is little' * scarce}")
    for name, folder in (("disk here", Path()), ("disk for temporary files", Path(tempfile.gettempdir()))):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"procurl")
            free = shutil.disk_usage(folder).free
        except OSError as error:
            yield Line(section, name, "problem", f"cannot be written to: {error.strerror}")
            continue
        status = "problem" if free < ROOM_NEEDED else "note" if free < ROOM_WANTED else "ok"
        yield Line(section, name, status, f"{free / 1e9:.1f} GB free{', which is little' * (status != 'ok')}")


def memory_limit() -> float | None:
    """Bytes: the machine's, or less where a container has less."""
    limits = []
    with suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # not there, or "max"
            limits.append(int(Path(name).read_text()))
    return float(min(limits)) if limits else None


def variables(environment: Mapping[str, str]) -> Iterator[Line]:
    """What is set that changes how JAX works."""
    section = "Environment variables"
    relevant = ("JAX_", "XLA_")
    named = ("CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
    there = {k: v for k, v in sorted(environment.items()) if k.startswith(relevant) or k in named}
    if not there:
        yield Line(section, "none", "ok", "JAX_*, XLA_* and CUDA_VISIBLE_DEVICES are not set")
    for name, value in there.items():
        status, remark = "ok", ""
        if name == "CUDA_VISIBLE_DEVICES" and value.strip() in ("", "-1"):
            status, remark = "note", "hides every GPU"
        elif name == "NVIDIA_TF32_OVERRIDE" and value == "1":
            status, remark = "note", "forces TF32 products, which change results: unset it"
        elif name == "LD_LIBRARY_PATH" and gpu_is_there():
            status, remark = "note", "may hide the CUDA libraries that JAX brings: unset it if the GPU is not found"
        elif name == "XLA_FLAGS" and "fast_math=true" in value.replace(" ", ""):
            status, remark = "note", "fast mathematics changes results"
        yield Line(section, name, status, f"{value!r}{': ' + remark if remark else ''}")


def gpu_is_there() -> bool:
    """An NVIDIA GPU with its driver, whatever JAX makes of it."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists()


# --- JAX --------------------------------------------------------------------------------------------------------------


def jax_findings(found: dict[str, Any] | None, error: str) -> Iterator[Line]:
    section = "JAX"
    if found is None:
        yield Line(section, "start", "problem", f"JAX does not start: {error}")
        return
    kinds = [f"{d['platform']} ({d['kind']})" for d in found["devices"]]
    listed = ", ".join(f"{kinds.count(k)} x {k}" for k in dict.fromkeys(kinds))
    yield Line(section, "devices", "ok", listed)
    yield from plugin_findings(found["backend"])
    if found["float64"]:
        yield Line(section, "float64", "problem", "is on: procurl computes in float32; unset JAX_ENABLE_X64")
    precision = found["matmul_precision"]
    if precision not in (None, "float32", "highest"):
        yield Line(
            section, "matrix products", "note",
            f"default precision is {precision}: results differ from full float32; unset JAX_DEFAULT_MATMUL_PRECISION",
        )  # fmt: skip
    if "threefry" not in found["prng"]:
        yield Line(section, "random numbers", "note", f"by {found['prng']}: runs differ from those of others")
    if found["without_jit"]:
        yield Line(section, "compilation", "problem", "is off: training would take forever; unset JAX_DISABLE_JIT")
    if found["mixes_classes"]:
        yield Line(
            section, "jax.jit", "note",
            f"jaxlib {installed('jaxlib')} may take one dataclass for another of equal shape (0.10.0 to 0.10.2 do): "
            f"procurl works around it, a jax.jit of your own does not; see docs/mixed-up-programs.md",
        )  # fmt: skip
    yield cache_line(found["cache"])


def plugin_findings(backend: str) -> Iterator[Line]:
    """A GPU that JAX does not see, and parts that do not fit each other."""
    plugins = {name: version for name in CUDA_PLUGINS if (version := installed(name))}
    jaxlib = installed("jaxlib")
    for name, version in plugins.items():
        if version != jaxlib:
            yield Line("JAX", name, "problem", f"{version}, but jaxlib is {jaxlib}: install both of one version")
    if backend != "gpu" and gpu_is_there():
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        if hidden or os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
            yield Line("JAX", "GPU", "note", "there is one, and environment variables keep JAX from it")
        elif plugins:
            yield Line(
                "JAX", "GPU", "problem", "there is one, and JAX's CUDA plug-in cannot use it: is the driver new?"
            )
        else:
            yield Line(
                "JAX", "GPU", "note",
                "there is one, but JAX lacks its CUDA plug-in: pip install -U 'jax[cuda13]' (jax[cuda12] for a driver "
                "older than 580)",
            )  # fmt: skip


def cache_line(folder: str | None) -> Line:
    section, name = "JAX", "compilation cache"
    if not folder:
        return Line(section, name, "ok", "not used; JAX_COMPILATION_CACHE_DIR=FOLDER saves compiling at every start")
    if "://" in folder:
        return Line(section, name, "ok", folder)
    nearest = Path(folder)
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        return Line(section, name, "ok", folder)
    return Line(section, name, "problem", f"{folder} cannot be written to: choose another JAX_COMPILATION_CACHE_DIR")


# --- privacy ----------------------------------------------------------------------------------------------------------


def private(text: str) -> str:
    """Without the home folder, the user's name and the machine's."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?![\w-])", "~", text)
    for name, put in ((_user(), "USER"), (socket.gethostname(), "HOST"), (socket.gethostname().split(".")[0], "HOST")):
        if len(name) > 2 and name != "localhost":
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", put, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return ""
