"""What went wrong in a seed, and where: from a trace or an evaluation that holds NaN or infinity to a `Failure`.

A failed seed's numbers are blanked from the first bad one on. The other seeds go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from procurl.errors import NonFiniteError
from procurl.runs.evaluation import Scores
from procurl.runs.store.failure import Failure
from procurl.runs.trace import FINITE, Trace
from procurl.types import Task, Teacher


def failure_in_trace(trace: Trace, s: int, seed: int, iteration: int, n_steps: int) -> Failure:
    """What an iteration's trace says about a seed that failed in it: number `s` of the run's seeds."""
    assert trace.place is not None
    here = jax.tree.map(lambda x: x[s], trace.place)
    step, environment = (int(here.step), int(here.environment)) if trace.inside[s] else (-1, -1)
    place = {f"task_{k}": v for k, v in here.task.arrays().items()}
    if step >= 0:
        place |= {"observation": here.obs, "action": here.action, "reward": here.reward, "value": here.value}
    place |= {f"loss_{k}": v[s] for k, v in trace.losses.items()}
    if not trace.inside[s]:
        what = "context"
    elif step >= 0:
        # A bad observation contaminates its value, and both contaminate the reward: the first of them is the cause.
        what = next(k for k in ("observation", "value", "reward") if not np.isfinite(place[k]).all())
    else:
        what = next(name for name, ok in zip(FINITE, trace.finite[s], strict=True) if not ok)
    return Failure(seed, iteration, n_steps, what, step, environment, {k: np.asarray(v) for k, v in place.items()})


def failure_in_evaluation(scores: Scores, s: int, held_out: Task, seed: int, iteration: int, n_steps: int) -> Failure:
    """The first held-out task whose return is not finite."""
    k = int(np.argmin(np.isfinite(scores.ret[s])))
    place = {**{f"task_{name}": x[k] for name, x in held_out.arrays().items()}, "return": scores.ret[s, k]}
    return Failure(seed, iteration, n_steps, "evaluation", -1, -1, {k: np.asarray(v) for k, v in place.items()})


def error_of(failures: Iterable[Failure], teacher: Teacher, n_seeds: int) -> NonFiniteError:
    """The error when no seed is left: which one failed first, where, and in what."""
    first = min(failures, key=lambda f: f.iteration)
    if first.what == "context":
        return NonFiniteError(
            f"seed {first.seed}: {type(teacher).__name__} proposed a context outside the task space (or NaN, "
            f"from weights that are no distribution; or a task without a number to an environment with by_number) at "
            f"iteration {first.iteration}. Let it pass its contexts through space.project, and try "
            f"procurl.check_teacher."
        )
    others = f" No seed is left of {n_seeds}." if n_seeds > 1 else ""
    return NonFiniteError(
        f"{first}.{others} The results up to there are kept. Check the environment with procurl.check_env, or "
        f"lower the student's lr if it is the loss."
    )


def blanked(failed: np.ndarray, x: Any, fill: float = np.nan) -> Any:
    """An array with the rows of failed seeds, bool[S], filled."""
    if not failed.any():
        return x
    blank = np.array(x)
    blank[failed] = fill
    return blank


def blanked_trace(failed: np.ndarray, trace: Trace) -> Trace:
    """The trace without the numbers of failed seeds; `finite` and `inside` stay, since they say what happened."""
    return trace._replace(
        task=Task(*(blanked(failed, x, fill) for x, fill in zip(trace.task[:3], (np.nan, -1, -1), strict=True))),
        **{k: blanked(failed, getattr(trace, k), 0) for k in ("started", "finished")},
        **{k: blanked(failed, getattr(trace, k)) for k in ("train_return", "train_success", "train_length")},
        losses={k: blanked(failed, v) for k, v in trace.losses.items()},
        values={k: blanked(failed, v) for k, v in trace.values.items()},
    )
