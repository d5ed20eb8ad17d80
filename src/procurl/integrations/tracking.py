"""TensorBoard and Weights & Biases as logs of a run (extra `[tracking]`): callbacks for `procurl.train`.

    log = TensorBoardLog("logs/first")
    procurl.train(env, teacher, seeds=4, callback=together(log, print))

`procurl train --log tensorboard --log wandb` is the same. A log only listens: if it breaks (a full disk, a server that
is gone) it says so once and the run goes on, as if it had never been there.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import ConfigError, RunFolderError, needs_extra, unknown_name
from procurl.runs.log import Progress
from procurl.runs.means import mean_and_error
from procurl.runs.store import disk

logger = logging.getLogger("procurl")

Numbers = dict[str, float]


def together(*callbacks: Callable[[Progress], bool | None]) -> Callable[[Progress], bool]:
    """One callback that calls all of them; the run stops when any of them asks for it."""

    def call_all(progress: Progress) -> bool:
        answers = [callback(progress) for callback in callbacks]  # all first: nobody is left out
        return all(answer is not False for answer in answers)

    return call_all


class RunLog:
    """A callback that writes down elsewhere what a run reports.

    Args:
        seeds: of the whole run, where they are trained one after the other; by default those of the first report.
        names: of the context's dimensions.
    """

    kind = ""

    def __init__(self, seeds: Sequence[int] | None = None, names: Sequence[str] = ()) -> None:
        self.seeds = None if seeds is None else tuple(seeds)
        self.names = tuple(names)
        self.broken = False

    def __call__(self, progress: Progress) -> None:
        if self.seeds is None:
            self.seeds = seeds_of(progress)
        self._guarded(lambda: self._write(progress), f"at {progress.steps:,} steps")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left; the log cannot be used afterwards."""
        self._guarded(self._close, "at the end")

    def _write(self, progress: Progress) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def _guarded(self, write: Callable[[], None], when: str) -> None:
        """Nothing that a log does wrong may reach the run."""
        if self.broken:
            return
        try:
            write()
        except Exception as error:
            self.broken = True
            logger.warning("the %s log broke %s (%s); training goes on without it", self.kind, when, reason(error))
            with suppress(Exception):
                self._close()


class TensorBoardLog(RunLog):
    """Event files below `folder`: one run of TensorBoard's per seed, and `mean` for all of them.

    One folder per run. Where the folder has events already, those from the first report on are taken back: a run that
    goes on from a checkpoint repeats what came after it.
    """

    kind = "TensorBoard"

    def __init__(self, folder: str | Path, *, seeds: Sequence[int] | None = None, names: Sequence[str] = ()) -> None:
        super().__init__(seeds, names)
        require_package("tensorboard")
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot use {folder} for TensorBoard: {error.strerror or error}") from error
        self._files: dict[str, EventFile] = {}

    def _write(self, progress: Progress) -> None:
        for seed, numbers in zip(seeds_of(progress), per_seed(progress, self.names), strict=True):
            self._file(f"seed-{seed}", progress).add(progress.steps, numbers)
        if seeds_of(progress) == self.seeds:  # a mean over some of the seeds would be another curve
            chosen = {f"chosen/{name}": values for name, values in contexts(progress, self.names).items()}
            self._file("mean", progress).add(progress.steps, seed_means(progress, self.names), chosen)

    def _file(self, name: str, progress: Progress) -> EventFile:
        if name not in self._files:
            self._files[name] = EventFile(self.folder / name, progress.steps)
        return self._files[name]

    def _close(self) -> None:
        for file in self._files.values():
            file.close()


class EventFile:
    """One new event file in TensorBoard's format, written with TensorBoard's own record writer.

    (Its `EventFileWriter` writes from a thread, where a full disk would be a traceback on the screen.)
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        earlier = [int(p.name.split(".")[3]) for p in folder.glob("events.out.tfevents.*")]
        stamp = max([int(time.time()), *(n + 1 for n in earlier)])  # files are read in the order of their names
        name = f"events.out.tfevents.{stamp:010}.{socket.gethostname()}.{os.getpid()}"
        self._event = Event
        self._file = open(folder / name, "xb")  # noqa: SIM115 (closed by `close`)
        self._records = RecordWriter(self._file)
        self._put(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if earlier:
            start = SessionLog(status=SessionLog.START)
            self._put(Event(wall_time=time.time(), step=first_step, session_log=start))
        self._file.flush()

    def add(self, step: int, numbers: Numbers, histograms: dict[str, Any] | None = None) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=x) for tag, x in numbers.items()])
        for tag, values in (histograms or {}).items():
            summary.MergeFrom(histogram_pb(tag, values))
        self._put(self._event(wall_time=time.time(), step=step, summary=summary))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _put(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


class WandbLog(RunLog):
    """A run of Weights & Biases, online where there is an account, else offline (`wandb sync` uploads it later).

    Never asks anything. WANDB_MODE is respected; offline files go to `folder`/wandb.

    Args:
        project: its name there.
        folder: for its files.
        name: of the run. A run of the same name and configuration goes on under the same id, without what was logged
            already; without a name every log is a new run.
        config: all that determines the run, as plain data.
        fresh: a new run, whatever was there under this name.
    """

    kind = "Weights & Biases"

    def __init__(
        self,
        project: str = "procurl",
        *,
        folder: str | Path = ".",
        name: str | None = None,
        config: dict[str, Any] | None = None,
        fresh: bool = False,
        seeds: Sequence[int] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(seeds, names)
        wandb = require_package("wandb")
        mode = wandb_mode(wandb)
        config = {k: v for k, v in (config or {}).items() if k != "steps"}  # with more steps it is still the same run
        self._state = WandbState(Path(folder), project, name, config, fresh)
        try:
            self._run = wandb.init(
                project=project, dir=str(folder), id=self._state.run_id, name=name, config=config, mode=mode,
                resume="allow" if mode == "online" else None,
                settings=wandb.Settings(console="off", silent=True),  # the terminal is ours
            )  # fmt: skip
            self._run.define_metric("*", step_metric="steps")
        except Exception as error:
            raise ConfigError(
                f"Weights & Biases does not start: {reason(error)}. WANDB_MODE=offline needs no network"
            ) from error
        logger.info("Weights & Biases: %s", self._run.url if mode == "online" else self._run.dir)
        self._histogram = wandb.Histogram

    def _write(self, progress: Progress) -> None:
        seeds, all_seeds = seeds_of(progress), self.seeds or ()
        # its steps may only grow: seeds that are trained one after the other are put one behind the other
        behind = all_seeds.index(seeds[0]) if len(seeds) < len(all_seeds) else 0
        position = behind * progress.total_steps + progress.steps
        if position <= self._state.position:
            return
        row: dict[str, Any] = {"steps": progress.steps}
        for seed, numbers in zip(seeds, per_seed(progress, self.names), strict=True):
            row |= {f"seed-{seed}/{tag}": x for tag, x in numbers.items()}
        if seeds == all_seeds:
            row |= seed_means(progress, self.names)
            for name, values in contexts(progress, self.names).items():
                row[f"chosen/{name}"] = self._histogram(np_histogram=np.histogram(values, bins=30))
        self._run.log(row, step=position)
        self._state.reached(position)

    def _close(self) -> None:
        self._run.finish()


class WandbState:
    """Which run of Weights & Biases a run of ours is, and how far it has come: a small file beside its folders."""

    def __init__(self, folder: Path, project: str, name: str | None, config: dict[str, Any], fresh: bool) -> None:
        self._told = json.loads(json.dumps({"project": project, "config": config}))
        self.run_id, self.position = os.urandom(6).hex(), -1
        self._path = (
            None if name is None else folder / "wandb" / f"procurl-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.json"
        )
        if self._path is not None and not fresh and self._path.exists():
            try:
                before = disk.from_json(disk.read(self._path, disk.MOST_TEXT), finite=False)
                if before["run"] == self._told:
                    self.run_id, self.position = str(before["id"]), int(before["position"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self._path} is damaged ({reason(error)}): remove it, and a new log begins"
                ) from error

    def reached(self, position: int) -> None:
        self.position = position
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            state = {"id": self.run_id, "position": position, "run": self._told}
            disk.replace(self._path, json.dumps(state).encode())


def wandb_mode(wandb: Any) -> str:
    """WANDB_MODE, or online for those who have logged in. Nobody is asked for an account."""
    given = os.environ.get("WANDB_MODE", "")
    if given and given != "online":
        return given
    if wandb.login(prompt=False, verify=False):
        return "online"
    if given:
        raise ConfigError("WANDB_MODE=online, but nobody is logged in: run `wandb login`, or set WANDB_MODE=offline")
    return "offline"


KINDS = {"tensorboard": TensorBoardLog, "wandb": WandbLog}


def open_log(
    text: str,
    *,
    out: Path | None,
    title: str,
    config: dict[str, Any],
    fresh: bool = False,
) -> RunLog:
    """The log that `--log KIND[:WHERE]` names. `out` is the run's folder; a run without one is a new one every time."""
    kind, _, where = text.partition(":")
    if kind not in KINDS:
        raise unknown_name("log", kind, KINDS)
    shared: dict[str, Any] = {"seeds": config["seeds"], "names": config["space"]["names"]}
    if kind == "tensorboard":
        return TensorBoardLog(where or default_folder(out, title), **shared)
    return WandbLog(where or "procurl", name=None if out is None else str(out), config=config, fresh=fresh, **shared)


def default_folder(out: Path | None, title: str) -> Path:
    """logs/OUT, so that `tensorboard --logdir logs` shows all runs."""
    if out is None:
        return Path("logs") / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', title)}-{time.strftime('%Y%m%d-%H%M%S')}"
    inside = not out.is_absolute() and ".." not in out.parts
    return Path("logs") / (out if inside else out.resolve().name)


def seeds_of(progress: Progress) -> tuple[int, ...]:
    return progress.seeds or tuple(range(len(progress.ret)))


def per_seed(progress: Progress, names: Sequence[str]) -> list[Numbers]:
    """Everything that is known of each seed; what has no value (no episode ended, say) is left out."""
    columns: dict[str, Any] = {"target/return": np.asarray(progress.ret)}
    training = progress.training
    columns |= {f"curriculum/{k}": v for k, v in progress.taught.items()}
    if training is not None:
        columns |= {f"curriculum/value_{k}": v for k, v in training.values.items()}
        columns |= {f"training/{k}": getattr(training, f"train_{k}") for k in ("return", "success", "length")}
        columns |= {f"loss/{k}": v for k, v in training.losses.items()}
        kept = np.isfinite(training.task.context)  # bool[S, k, d]
        total = np.where(kept, training.task.context, 0.0).sum(axis=1)
        means = total / np.maximum(kept.sum(axis=1), 1)  # f32[S, d]
        means[~kept.any(axis=1)] = np.nan
        columns |= {f"context/{name}": means[:, i] for i, name in enumerate(dimension_names(names, means.shape[1]))}
    return [
        {tag: float(column[s]) for tag, column in columns.items() if np.isfinite(column[s])}
        for s in range(len(progress.ret))
    ]


def seed_means(progress: Progress, names: Sequence[str]) -> Numbers:
    """The means over seeds, the standard error of the return, and what there is only once."""
    rows = per_seed(progress, names)
    tags = dict.fromkeys(tag for row in rows for tag in row)
    numbers = {tag: float(np.mean([row[tag] for row in rows if tag in row])) for tag in tags}
    if len(rows) > 1:
        sound = np.asarray(progress.ret)[np.isfinite(progress.ret)]
        if len(sound) > 1:
            numbers["target/return_error"] = float(mean_and_error(sound)[1])
    numbers["speed/steps_per_second"] = float(progress.steps_per_second)
    if progress.teacher_share is not None:
        numbers["speed/teacher_share"] = float(progress.teacher_share)
    return numbers


def contexts(progress: Progress, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Per dimension: the contexts that the teacher chose in the latest iteration, of all seeds together."""
    if progress.training is None:
        return {}
    chosen = np.asarray(progress.training.task.context)
    chosen = chosen.reshape(-1, chosen.shape[-1])
    chosen = chosen[np.isfinite(chosen).all(axis=1)]
    return {name: chosen[:, i] for i, name in enumerate(dimension_names(names, chosen.shape[1]))} if len(chosen) else {}


def dimension_names(names: Sequence[str], d: int) -> Sequence[str]:
    return names if len(names) == d else [str(i) for i in range(d)]


def require_package(name: str) -> Any:
    import importlib

    with needs_extra("tracking", f"a log for {name} needs the package", name):
        return importlib.import_module(name)


def reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).strip().splitlines()[0]
