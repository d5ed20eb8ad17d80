"""Errors that speak to the user: what was given, what was expected, what to do.

All derive from `ProcurlError`; the command line prints them without a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ProcurlError(Exception):
    """The base of every error that procurl raises on purpose."""


class ConfigError(ProcurlError, ValueError):
    """A setting, name or number that cannot be used."""


class SpaceError(ProcurlError, ValueError):
    """A task space that contradicts itself."""


class CheckError(ProcurlError, AssertionError):
    """A class that does not keep its contract."""


class RunFolderError(ProcurlError, OSError):
    """A run folder that cannot be written or read."""


class CheckpointError(RunFolderError):
    """A checkpoint that is damaged, or belongs to something else."""


class NewerFormatError(CheckpointError):
    """A file in a format that only a newer procurl knows: nothing is wrong with it, and it is left alone."""


class NonFiniteError(ProcurlError, FloatingPointError):
    """NaN or infinity where a number was needed."""


class IdleError(ProcurlError, RuntimeError):
    """A curriculum that does nothing, where `strict=True` asked for an error."""


class WorkerError(ProcurlError, RuntimeError):
    """A process that played environments and failed."""


class MissingExtraError(ProcurlError, ImportError):
    """An optional package that is not installed."""


def unknown_name(kind: str, given: str, known: Iterable[str], also: Iterable[str] = ()) -> ConfigError:
    """The error for a misspelt name, with the closest valid ones; `also` are short forms that are valid too."""
    known, given = sorted(known), str(given)
    if not known:
        return ConfigError(f"unknown {kind} '{given}': there is none")
    close = difflib.get_close_matches(given, [*known, *also], n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(dict.fromkeys(close))}? " if close else ""
    return ConfigError(f"unknown {kind} '{given}'. {hint}Valid: {', '.join(known)}")


def cannot_withhold(learner: str) -> ConfigError:
    """The error for a teacher that withholds tasks from learning, where the learner learns from everything it plays."""
    return ConfigError(
        f"this strategy has tasks played that the student must not learn from (Task.learn), but {learner} learns from "
        f"all it plays: use it with PPO in procurl.train, or in a loop of your own that heeds task.learn; or take a "
        f"strategy without such tasks, e.g. plr"
    )


def cannot_play() -> ConfigError:
    """The error for a teacher that wants episodes played, where its critic cannot play any."""
    return ConfigError(
        "this strategy has the student play episodes for the teacher alone (critic.play), which only an environment in "
        "JAX can do: use it with procurl.train and such an environment, or take a strategy that does without, e.g. "
        "procurl-unif or procurl-target"
    )


@contextmanager
def needs_extra(extra: str, need: str, *packages: str, otherwise: str = "") -> Iterator[None]:
    """Around imports of optional packages: if one is missing, the error says what needs it and how to install it.

    `{}` in `need` becomes the name of the missing package. With `packages`, an error
    about any other package passes unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if packages and error.name not in packages:
            raise
        raise MissingExtraError(f"{need.format(error.name)}: pip install 'procurl[{extra}]'{otherwise}") from error
