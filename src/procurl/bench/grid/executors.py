"""Where cells run. An executor takes cells and reports what becomes of them; the runner knows no more about it.

Here: processes on this machine, one per core, or one for a GPU. For a cluster see `ray_executor.py`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from procurl.bench.grid import worker
from procurl.bench.grid.cells import Cell
from procurl.devices import available_cores
from procurl.errors import ConfigError

if TYPE_CHECKING:
    from procurl.bench.grid.folder import GridFolder

PATIENCE = 20.0  # seconds for workers to save themselves when we are asked to stop


@dataclass(frozen=True)
class Report:
    """A cell is running."""

    cell: Cell
    steps: int = 0  # played by each seed
    total: int = 0
    ret: float | None = None  # on the target tasks, mean over seeds; None before the first evaluation


@dataclass(frozen=True)
class Outcome:
    """A cell has ended."""

    cell: Cell
    kind: Literal["done", "failed", "lost"]  # lost: its process or machine went away, which is not the cell's fault
    error: str = ""


class Executor(Protocol):
    def submit(self, cell: Cell) -> None:
        """Run this cell when there is room."""

    def events(self) -> Iterator[Report | Outcome]:
        """What happens, until no cell is left; `submit` may be called in between."""

    def close(self) -> None:
        """End all that still runs; it will go on from its checkpoint another time."""


class LocalExecutor:
    """One process per cell at a time on each of `workers` places."""

    save_share = 0.02  # of a worker's time, for its checkpoints

    def __init__(self, folder: GridFolder, device: str, workers: int | None = None) -> None:
        self.folder, self.device = folder, device
        self.workers = workers or (1 if device == "gpu" else available_cores())
        self._waiting: deque[Cell] = deque()
        self._selector = selectors.DefaultSelector()
        self._running: dict[Cell, _Process] = {}

    def submit(self, cell: Cell) -> None:
        self._waiting.append(cell)

    def events(self) -> Iterator[Report | Outcome]:
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self.workers:
                yield self._start(self._waiting.popleft())
            for key, _ in self._selector.select():
                process: _Process = key.data
                yield from process.news()
                if process.outcome is not None:
                    self._selector.unregister(process.popen.stdout)  # type: ignore[arg-type]
                    del self._running[process.cell]
                    process.release()
                    yield process.outcome

    def _start(self, cell: Cell) -> Report:
        job = worker.Job(cell, self.folder.cell(cell).absolute(), self.device, self.save_share, self.folder.own)
        shared = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / self.workers:.2f}"} if self.workers > 1 else {}
        with open(self.folder.log(cell), "ab") as log:
            process = _Process(cell, worker.start(job, log, shared if self.device == "gpu" else {}))
        self._running[cell] = process
        self._selector.register(process.popen.stdout, selectors.EVENT_READ, process)  # type: ignore[arg-type]
        return Report(cell)

    def close(self) -> None:
        running = [process.popen for process in self._running.values()]
        try:
            for popen in running:
                with suppress(ProcessLookupError):
                    popen.send_signal(signal.SIGTERM)
            until = time.monotonic() + PATIENCE
            for popen in running:
                with suppress(subprocess.TimeoutExpired):
                    popen.wait(max(0.0, until - time.monotonic()))
        finally:  # also when somebody presses Ctrl-C a second time
            for process in self._running.values():
                process.popen.kill()
                process.popen.wait()
                process.release()
            self._running.clear()
            self._selector.close()


class _Process:
    """A worker and what it has said."""

    def __init__(self, cell: Cell, popen: subprocess.Popen[bytes]) -> None:
        self.cell, self.popen = cell, popen
        self.outcome: Outcome | None = None
        self._unread = b""
        self._error = ""

    def news(self) -> Iterator[Report]:
        """Read what there is; call it when there is something. At the end of the output, `outcome` is set."""
        assert self.popen.stdout is not None
        content = os.read(self.popen.stdout.fileno(), 65536)
        *lines, self._unread = (self._unread + content).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "error" in said:
                self._error = said["error"]
            else:
                yield Report(self.cell, **said)
        if not content:
            self.outcome = outcome_of(self.cell, self.popen.wait(), self._error)

    def release(self) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


def outcome_of(cell: Cell, status: int, error: str) -> Outcome:
    """What a worker's exit status means."""
    if status == 0:
        return Outcome(cell, "done")
    if status < 0:
        return Outcome(cell, "lost", f"its process was ended by {signal.Signals(-status).name}")
    if status == 128 + signal.SIGTERM:
        return Outcome(cell, "lost", "its process was asked to end (SIGTERM)")
    return Outcome(cell, "failed", error or f"its process ended with status {status}")


def device_found(device: str | None) -> str:
    """ "cpu" or "gpu": what was asked for, or what JAX finds. Asked in another process, which frees it again."""
    if device is not None:
        return device
    found: Any = subprocess.run(
        [sys.executable, "-c", "import jax; print(jax.default_backend())"], capture_output=True, text=True
    )
    if found.returncode != 0:
        last = (found.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"JAX finds no device to compute on: {last}. Choose with --device cpu")
    return "gpu" if found.stdout.split()[-1] == "gpu" else "cpu"
