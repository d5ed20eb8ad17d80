"""The process that trains one cell: `python -m procurl.bench.grid.worker JOB`, started by an executor.

It reports on its standard output, one JSON object per line; everything else that is printed goes to its standard
error, which is the cell's log. Its standard input is a pipe that nobody writes to: when the parent ends, however that
happens, the pipe closes and the worker ends too. Nothing is lost by that, since it saves itself as it goes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from procurl.bench.grid.cells import NONE, Cell, built
from procurl.bench.grid.own import Own
from procurl.devices import drop_cut_programs, use_device
from procurl.errors import ProcurlError
from procurl.runs.interrupt import leave
from procurl.runs.store import disk


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know."""

    cell: Cell
    folder: Path
    device: str
    save_share: float  # of the time, for checkpoints
    own: Own = NONE  # classes that are not procurl's, as the command line of the parent named them

    def to_json(self) -> str:
        parts = {"cell": self.cell.to_json(), "folder": str(self.folder), "own": self.own.to_json()}
        return json.dumps({**vars(self), **parts})

    @classmethod
    def from_json(cls, text: str) -> Job:
        row = json.loads(text)
        parts = {"cell": Cell.from_json(row["cell"]), "folder": Path(row["folder"]), "own": Own.from_json(row["own"])}
        return cls(**{**row, **parts})


def start(job: Job, log: IO[bytes], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A worker in a process and session of its own: Ctrl-C reaches the parent alone, who tells its workers."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "procurl.bench.grid.worker", job.to_json()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        env={**threads, **os.environ, **(environment or {})},
    )  # fmt: skip


def main() -> int:
    say = _channel()
    _end_with_parent()
    job = Job.from_json(sys.argv[1])
    drop_cut_programs()
    try:
        use_device(job.device, cores=1)
        _train(job, say)
    except (KeyboardInterrupt, SystemExit):
        return leave(128 + signal.SIGTERM)
    except ProcurlError as error:
        say(error=str(error))
        return 1
    except Exception as error:
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {error}")
        return 1
    return 0


def _train(job: Job, say: Any) -> None:
    import procurl
    from procurl.runs.store import checkpoint, result

    _wait_for(job.folder)
    if checkpoint.holds_run(job.folder) and not checkpoint.checkpoints(job.folder):
        result.remove_result(job.folder)  # a run that failed early left what it had, and nothing to go on from
    env, teacher, config = built(job.cell.group, job.own)

    def report(progress: Any) -> None:
        say(steps=progress.steps, total=progress.total_steps, ret=round(progress.mean_return, 4))

    procurl.train(
        env, teacher, config, seeds=job.cell.seeds, steps=job.cell.steps, out=job.folder, callback=report,
        save_share=job.save_share, time_teacher=True,
    )  # fmt: skip


def _wait_for(folder: Path) -> None:
    """Wait for a worker that has the folder: if its parent was killed a moment ago, it is about to end, too."""
    folder.mkdir(parents=True, exist_ok=True)
    with disk.locked(folder, wait=True):
        pass


def _channel() -> Any:
    """A function that says something to the parent. Anything else that is printed goes to the log."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        print(json.dumps(message), file=channel, flush=True)

    return say


def _end_with_parent() -> None:
    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
