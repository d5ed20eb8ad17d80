"""Cells as tasks of a Ray cluster (extra `[ray]`).

A node need not share our disk: the task runs the same worker process as the local executor in a folder of its own, and
sends what it says, its checkpoints and in the end its files. So what a lost worker or node had done is here, and the
next attempt, on another node, goes on from there; so does this machine, should the cluster be gone.

Ray checks a token on every connection (docs.ray.io, "Ray token authentication"). Without an address we start a cluster
of our own, with a new token, that listens on the loopback interface alone.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import platform
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from procurl import __version__
from procurl.bench.grid import worker
from procurl.bench.grid.cells import Cell
from procurl.bench.grid.executors import Outcome, Report, outcome_of
from procurl.errors import ConfigError, ProcurlError, needs_extra
from procurl.runs.store import disk

if TYPE_CHECKING:
    from procurl.bench.grid.folder import GridFolder

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOG_KEPT = 100_000  # bytes of a worker's log, the last ones


class ClusterError(ProcurlError, ConnectionError):
    """A Ray cluster that cannot be used."""


class RayExecutor:
    """One task per cell, with one CPU, and one GPU where `device` says so."""

    save_share = 0.02  # of a worker's time, for its checkpoints
    sent_every = 30.0  # seconds between two of them on their way to us

    def __init__(self, folder: GridFolder, device: str, ray: Any) -> None:
        self.folder, self.device = folder, device
        self._ray = ray  # see `connect`
        self._running: dict[Any, Cell] = {}
        resources = {"num_cpus": 1, "num_gpus": 1 if device == "gpu" else 0}
        try:
            self._versions = _require_same_versions(self._ray)
            _require_resources(self._ray, device)
        except BaseException:
            self._ray.shutdown()
            raise
        # Retried by the runner, which knows the latest checkpoint, and not by Ray, which would start over.
        self._play = self._ray.remote(**resources, max_retries=0, num_returns="streaming")(play)

    def submit(self, cell: Cell) -> None:
        job = worker.Job(cell, Path(), self.device, self.save_share, self.folder.own)
        files = latest_checkpoint(self.folder.cell(cell))
        self._running[self._play.remote(job.to_json(), files, self.sent_every, self._versions)] = cell

    def events(self) -> Iterator[Report | Outcome]:
        errors = self._ray.exceptions
        while self._running:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, fetch_local=False)
            for stream in ready:
                cell = self._running[stream]
                try:
                    event = self._received(cell, self._ray.get(next(stream)))
                except StopIteration:
                    event = Outcome(cell, "lost", "its task ended without a word")
                except errors.RayTaskError as error:
                    event = Outcome(cell, "failed", str(error.cause or error))
                except errors.RayError as error:  # a worker or a node that is gone, with what it had not sent
                    event = Outcome(cell, "lost", f"{type(error).__name__}: {_first_line(error)}")
                if isinstance(event, Outcome):
                    del self._running[stream]
                if event is not None:
                    yield event

    def _received(self, cell: Cell, message: dict[str, Any]) -> Report | Outcome | None:
        place = self.folder.cell(cell)
        if "checkpoint" in message:
            _store_checkpoint(place, message["checkpoint"])
            return None
        if "report" in message:
            return Report(cell, **message["report"])
        with open(self.folder.log(cell), "ab") as log:
            log.write(message["log"])
        if message["files"]:
            _store_result(place, message["files"])
        return outcome_of(cell, message["status"], message["error"])

    def close(self) -> None:
        for stream in self._running:
            with suppress(Exception):  # it may have ended, or its node may be gone
                self._ray.cancel(stream, force=True)
        self._running.clear()
        self._ray.shutdown()


def play(
    job_text: str, files: dict[str, bytes], sent_every: float, versions: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """The task, on a node: what its worker says as it goes, a checkpoint now and then, and all files in the end."""
    yield {"report": {}}
    job = worker.Job.from_json(job_text)
    with tempfile.TemporaryDirectory(prefix="procurl-") as home, open(Path(home) / "log", "w+b") as log:
        _require(_versions(), versions, platform.node())
        job = dataclasses.replace(job, folder=Path(home) / job.cell.name)
        _write_all(job.folder, files)
        with worker.start(job, log) as process:
            assert process.stdout is not None and process.stdin is not None
            error, sent_at, sent = "", time.monotonic(), ""
            for line in process.stdout:
                said = json.loads(line)
                if "error" in said:
                    error = said["error"]
                    continue
                yield {"report": said}
                if time.monotonic() - sent_at >= sent_every:
                    checkpoint = latest_checkpoint(job.folder)
                    if checkpoint and min(checkpoint) != sent:
                        yield {"checkpoint": checkpoint}
                        sent_at, sent = time.monotonic(), min(checkpoint)
            status = process.wait()
        result = {p.name: p.read_bytes() for p in job.folder.iterdir() if p.is_file()} if job.folder.exists() else {}
        log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_KEPT))
        yield {"status": status, "error": error, "log": log.read(), "files": result}


def latest_checkpoint(folder: Path) -> dict[str, bytes]:
    """The files of a run's latest checkpoint by their path in the run folder; none if there is none."""
    from procurl.runs.store.checkpoint import checkpoints

    for path in reversed(checkpoints(folder)):
        with suppress(FileNotFoundError):  # its worker may remove it while we read
            return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(path.iterdir())}
    return {}


def _write_all(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        disk.write(folder / name, content)


def _store_checkpoint(place: Path, files: dict[str, bytes]) -> None:
    """Store this checkpoint in place of all earlier ones."""
    from procurl.runs.store.checkpoint import keep_latest, only_writer

    checkpoint = place / "checkpoints" / Path(min(files)).parent.name
    with only_writer(place):
        checkpoint.parent.mkdir(exist_ok=True)
        if not checkpoint.exists():
            disk.place_folder(checkpoint, {Path(path).name: content for path, content in files.items()})
        keep_latest(place, 1)


def _store_result(place: Path, files: dict[str, bytes]) -> None:
    from procurl.runs.store.checkpoint import only_writer
    from procurl.runs.store.result import remove_result

    with only_writer(place):
        remove_result(place)
        disk.fill_folder(place, files)


def connect(address: str | None, workers: int | None = None) -> Any:
    """Ray, connected to a cluster, or to one of its own on this machine; its module, since nobody else imports it.

    To be called before JAX is imported: Ray forks this process, which JAX's threads do not survive.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own = address is None
    if own:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    else:
        assert address is not None
        _require_reachable(address)
        _require_token()
    if own or address.rpartition(":")[0] in LOOPBACK:  # type: ignore[union-attr]
        # Ray's way to say: this node is 127.0.0.1, and listens there only. It is read when Ray is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    with needs_extra("ray", "--executor ray needs {}"):
        import ray
    # "local": without it, Ray would take any cluster that it finds on this machine or in RAY_ADDRESS.
    alone = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    options: dict[str, Any] = {"address": address} if address else alone
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster of its own"
        if "ersion mismatch" in str(error):
            raise ClusterError(
                f"{where} has other versions than this machine. {' '.join(str(error).split())} Install the same on all "
                f"machines."
            ) from error
        advice = " It answers: is it a Ray cluster, and is the token its own (RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token)?"
        raise ClusterError(
            f"cannot use {where}: {type(error).__name__}: {_first_line(error)}.{advice if address else ''}"
        ) from error
    return ray


def _require_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ConfigError(
            f"--address {address}: expected HOST:PORT as `ray start --head` prints it. A machine outside of the "
            f"cluster joins it first: ray start --address HOST:PORT --num-cpus 0"
        )
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {error.strerror or error}. Expected one that was started with "
            f"`RAY_AUTH_MODE=token ray start --head`; is the address right, and the port open?"
        ) from error


def _require_token() -> None:
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ["RAY_AUTH_MODE"] == "token" and not given and not (Path.home() / ".ray" / "auth_token").is_file():
        raise ClusterError(
            "no token for the Ray cluster: expected the cluster's in ~/.ray/auth_token, or in a file that "
            "RAY_AUTH_TOKEN_PATH names (`ray get-auth-token --generate` makes one)"
        )


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {
        "procurl": __version__, "python": platform.python_version(), "jax": version("jax"), "ray": version("ray")
    }  # fmt: skip


def _require(there: dict[str, str], here: dict[str, str], node: str) -> None:
    differing = [
        f"{name} {there.get(name, 'is not')} there, {here[name]} here" for name in here if there.get(name) != here[name]
    ]
    if differing:
        raise ClusterError(
            f"the Ray node {node} has other versions: {'; '.join(differing)}. Install the same on all machines."
        )


def _require_same_versions(ray: Any) -> dict[str, str]:
    """Ask every node, before any work is done. Nodes that join later are asked by their first task."""
    here = _versions()

    def ask() -> dict[str, str]:  # a function in a function travels as a whole: the node may lack this package
        try:
            from procurl.bench.grid import ray_executor
        except ImportError:
            return {}
        return ray_executor._versions()

    placed = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    for node in ray.nodes():
        if node["Alive"]:
            name = f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
            remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=placed(node["NodeID"], soft=False))(ask)
            try:
                there = ray.get(remote.remote())
            except ray.exceptions.RayError as error:
                raise ClusterError(f"the Ray node {name} does not work: {_first_line(error)}") from error
            _require(there, here, name)
    return here


def _require_resources(ray: Any, device: str) -> None:
    there = ray.cluster_resources()
    wanted = "GPU" if device == "gpu" else "CPU"
    if there.get(wanted, 0) < 1:
        raise ClusterError(
            f"the Ray cluster has no {wanted} to give: expected at least one (it has {there.get('CPU', 0):.0f} CPU, "
            f"{there.get('GPU', 0):.0f} GPU). Start nodes with some, or choose another --device."
        )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
