"""`procurl.train` repeats Algorithm 1 for all seeds at once (see `engine.py`). Between iterations it logs, evaluates,
saves and listens for Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from procurl.check import contracts, numbers
from procurl.config import Config
from procurl.errors import ConfigError, cannot_play, cannot_withhold
from procurl.runs.class_origin import class_notes
from procurl.runs.log import Log, Progress
from procurl.runs.provenance import describe
from procurl.runs.store.checkpoint import Nowhere, Resume, RunFolder, open_run
from procurl.runs.store.classes import as_provenance
from procurl.runs.store.result import Result
from procurl.runs.trace import Trace
from procurl.teachers.base import says
from procurl.types import Continuous, Env, HostEnv, Teacher

if TYPE_CHECKING:
    from procurl.runs.interrupt import Interruptible
    from procurl.runs.sweep.log import Logs


def train(
    env: Env | HostEnv,
    teacher: Teacher,
    config: Config | None = None,
    *,
    seeds: Iterable[int] | int = 1,
    steps: int = 1_000_000,
    out: str | Path | None = None,
    resume: Resume = "auto",
    save_share: float = 0.02,
    callback: Callable[[Progress], bool | None] | None = None,
    time_teacher: bool = False,
    workers: int | None = None,
    strict: bool = False,
) -> Result:
    """Train one student per seed with a curriculum, and evaluate it on the held-out target tasks.

    Args:
        env: from `procurl.make`, or your own.
        teacher: from `procurl.make_teacher`, or your own.
        config: the student's and the loop's settings, e.g. `procurl.preset("point-mass-1t")`.
        seeds: seed numbers, or how many (0 .. n-1).
        steps: environment steps per seed, rounded up to whole iterations; `result.steps` is exact.
        out: folder for checkpoints and the result; nothing is written without it. A folder that holds anything but
            an unfinished run with the same configuration is refused.
        resume: "auto" goes on with an unfinished run in `out`, as if it had not been cut; "extend" also with a finished
            one that was given fewer steps; "never" moves it aside and starts anew; a number goes on from the checkpoint
            of that iteration.
        save_share: the largest share of the time that saving checkpoints may take.
        callback: called with a `Progress` after every evaluation; return False to stop early.
        time_teacher: also measure the teacher's share of an iteration (compiles its functions once more).
        workers: processes that play an environment outside of JAX (the Bipedal Walker); by default one per core. How
            many there are does not change the result.
        strict: a curriculum that does nothing for 20 iterations (tasks like uniform draws, or values outside their
            range) is an error instead of a warning. The settings of the paper are exempt.

    NaN or infinity stops the seed in which it appears, and no other: its curves and evaluations are NaN from there on,
    and `result.failures` and `out/failures/` say where it was. With no seed left, NonFiniteError is raised.

    Ctrl-C ends the current iteration, saves to `out` what was done, and then raises KeyboardInterrupt; SIGTERM does the
    same and raises SystemExit. Before the first iteration there is nothing to save, and both are raised at once, even
    while the compiler is at work. It is left to finish: a script's exit waits for it, the command line's does not.
    """
    from procurl.runs.interrupt import Interruptible

    config = Config() if config is None else config
    contracts.require_kinds(env, teacher, config, callback)
    seed_numbers = numbers.seed_numbers(seeds)
    n_iterations = numbers.iterations(steps, config.student.n_steps)
    contracts.require_fit(env, teacher)
    require_engine(env, teacher, config, workers)
    described = describe(env, teacher, config, seed_numbers, n_iterations * config.student.n_steps)

    with (
        open_run(out, described, resume, save_share, notes=class_notes(env, teacher)) as folder,
        Interruptible() as interrupt,
        closing(engine_for(env, teacher, config, seed_numbers, workers)) as engine,
    ):
        origin = as_provenance(folder.classes)
        log = Log(env, teacher, config, seed_numbers, n_iterations, origin=origin, strict=strict)
        [result] = repeat(engine, log, folder, interrupt, callback, time_teacher)
    if log.status == "failed":
        raise log.failure()
    if log.status == "interrupted":
        raise interrupt.error()
    return result


def repeat(
    engine: AnyEngine,
    log: Log | Logs,
    folder: RunFolder | Nowhere,
    interrupt: Interruptible,
    callback: Callable[[Progress], bool | None] | None = None,
    time_teacher: bool = False,
) -> list[Result]:
    """Iterate and evaluate until the log says how it ended, and keep what there is to keep."""
    if folder.found:
        carry = folder.restore(engine, log)
    else:
        carry = engine.begin()
        log.evaluated(engine.evaluate(carry, 0))
    while log.status == "running":
        while not log.evaluation_is_due:
            carry, trace = engine.iterate(carry, log.iterations)
            log.iterated(trace)
            interrupt.unsaved = True
            if interrupt.requested or log.status == "failed":
                break
        log.fetch()
        if interrupt.requested:
            log.status = "interrupted"
        elif log.status == "running":
            log.evaluated(engine.evaluate(carry, log.iterations))
            if time_teacher and log.teacher_seconds is None:
                with interrupt.dispensable():
                    log.timed_teacher(engine.teacher_seconds(carry))
            stop = callback is not None and callback(log.progress()) is False
            if stop and log.status == "running":
                log.status = "stopped"
        folder.keep(engine, carry, log)
    results = log.results(engine.params(carry))
    folder.finish(results)
    return results


class AnyEngine(Protocol):
    """What `train` asks of an engine, whose carry is its own affair: begin -> iterate, ... and the rest at any time."""

    def begin(self) -> Any: ...
    def iterate(self, carry: Any, t: int) -> tuple[Any, Trace]: ...
    def evaluate(self, carry: Any, t: int) -> Any: ...
    def teacher_seconds(self, carry: Any) -> float: ...
    def params(self, carry: Any) -> Any: ...
    def saved(self, carry: Any) -> dict[str, np.ndarray]: ...
    def restored(self, tensors: dict[str, np.ndarray], where: str) -> Any: ...
    def close(self) -> None: ...


def engine_for(
    env: Env | HostEnv,
    teacher: Teacher,
    config: Config,
    seeds: tuple[int, ...],
    workers: int | None,
    fields: dict[str, np.ndarray] | None = None,
) -> AnyEngine:
    """The engine for where the environment lives: in JAX, or in worker processes. `fields`: see `Engine`."""
    from procurl.teachers.ranged import ranged

    teacher = ranged(teacher)
    if isinstance(env, HostEnv):
        from procurl.runs.host.engine import HostEngine

        return HostEngine(env, teacher, config, seeds, workers)
    from procurl.runs.engine import Engine  # it compiles `begin` and `iteration`

    return Engine(env, teacher, config, seeds, fields)


def require_engine(env: Env | HostEnv, teacher: Teacher, config: Config, workers: int | None) -> None:
    """Refuse what no engine can run, before anything is written."""
    if workers is not None:
        numbers.whole("workers", workers, 1)
    if config.sac is not None and says(teacher, "withholds"):
        raise cannot_withhold("SAC")
    if isinstance(env, HostEnv):
        if says(teacher, "plays"):
            raise cannot_play()
        return
    if config.sac is not None:
        require_bounds(env)
    if workers is not None:
        raise ConfigError(
            f"workers = {workers}: {type(env).__name__} is played in JAX, without worker processes: leave it out"
        )


def require_bounds(env: Env) -> None:
    """SAC's actions fill a box: refuse an environment that has none."""
    action = env.action
    if isinstance(action, Continuous) and np.isfinite(action[1:]).all() and action.low < action.high:
        return
    raise ConfigError(
        f"{type(env).__name__} has {action}: SAC expects Continuous actions within finite bounds. Leave Config.sac out "
        f"for PPO, or give the environment such actions"
    )
