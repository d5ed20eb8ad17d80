"""`procurl check MODULE:NAME`: whatever a user has written, found (`user_files`), recognised, and tested against its
contract.

    procurl check my_env.py:MyEnv --space my_env.py:space
    procurl check my_package.teachers:HalfMastered
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from procurl.check.env import env_findings
from procurl.check.findings import Findings
from procurl.check.space import basic_findings, space_findings
from procurl.check.teacher import teacher_findings
from procurl.check.user_files import made, named_space, only_space, setting_space, space_for, split
from procurl.errors import ConfigError, needs_extra
from procurl.types import HostEnv, TaskSpace

DEFAULT_SETTING = "point-mass-2g"  # whose tasks a teacher is tried on, where none are named
STEPS = 2000  # of an episode, at most


class Checked(NamedTuple):
    """What was looked at, and what was found."""

    what: str
    findings: Findings


def check(target: str, space: str | None = None, steps: int = STEPS) -> list[Checked]:
    """Everything about the object that `target` names: its task space, then itself."""
    module, name = split(target)

    def tried_on() -> TaskSpace:
        return named_space(space) if space else (only_space(module) or setting_space(DEFAULT_SETTING))

    thing = made(module, name, tried_on)
    tasks = space_for(thing, module, space)
    if isinstance(thing, tuple):
        thing = thing[0]
    if isinstance(thing, TaskSpace):
        return [Checked(f"{name}, a task space", space_findings(thing))]
    kind, contract = recognised(thing, name)
    if tasks is None and kind != "a Gymnasium environment":
        raise ConfigError(
            f"{name} is {kind}, and which tasks it is for is not known: give --space MODULE:NAME or a setting, let the "
            f"function return (environment, space), or put one procurl.task_space(...) into the same file"
        )
    done = []
    if tasks is not None:
        done.append(Checked("its task space", space_findings(tasks)))
        if basic_findings(tasks).problems:
            return done  # nothing can be played there
    done.append(Checked(f"{name}, {kind}", contract(thing, tasks, steps)))
    return done


def report(checked: list[Checked]) -> tuple[str, int]:
    """For people: every problem and every note; and the exit status."""
    lines = []
    for what, found in checked:
        verdict = _count(len(found.problems), "problem") if found.problems else "ok"
        notes = f", {_count(len(found.notes), 'note')}" if found.notes else ""
        lines.append(f"{what}: {verdict}{notes}")
        lines += [f"  problem: {text}" for text in found.problems]
        lines += [f"  note: {text}" for text in found.notes]
    return "\n".join(lines), int(any(found.problems for _, found in checked))


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' if n > 1 else ''}"


def recognised(thing: Any, name: str) -> tuple[str, Callable[[Any, Any, int], Findings]]:
    """What it is, by what it has, and the contract for that."""
    if hasattr(thing, "propose") and hasattr(thing, "observe"):
        return "a teacher", lambda teacher, space, steps: teacher_findings(teacher, n=64)
    if isinstance(thing, HostEnv):
        return "an environment for worker processes", _on_host("host_findings")
    if hasattr(thing, "observation_space") and hasattr(thing, "action_space"):
        return "a Gymnasium environment", _on_host("gymnasium_findings")
    if hasattr(thing, "reset") and hasattr(thing, "step"):
        return "an environment in JAX", env_findings
    raise ConfigError(
        f"{name} is {type(thing).__name__}, and not recognised: expected an environment (reset and step), a Gymnasium "
        f"environment, an environment for worker processes (maker), a teacher (propose and observe) or a "
        f"procurl.TaskSpace"
    )


def _on_host(contract: str) -> Callable[[Any, Any, int], Findings]:
    with needs_extra("gymnasium", "checking this needs {}", "gymnasium"):
        import gymnasium  # noqa: F401
    from procurl.check import host

    return getattr(host, contract)  # type: ignore[no-any-return]
