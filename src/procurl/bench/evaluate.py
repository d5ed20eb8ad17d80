"""`procurl evaluate`: the final students of a run on its held-out tasks, as a table."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np

from procurl.bench.report.tables import text_table
from procurl.bench.stats import mean_and_error, with_error
from procurl.check.numbers import whole
from procurl.check.text import in_one_line
from procurl.errors import ConfigError, RunFolderError
from procurl.programs import jit
from procurl.runs.evaluation import Scores, evaluate
from procurl.runs.provenance import rebuilt_env
from procurl.runs.store.classes import noted
from procurl.runs.store.result import Result
from procurl.students.policy import actors, unflatten
from procurl.types import Env, HostEnv, Task, TaskSpace


def evaluate_run(
    result: Result, episodes: int, deterministic: bool, setting: tuple[Env | HostEnv, TaskSpace] | None = None
) -> str:
    """Replay the held-out tasks of a run with its final students: mean return per task, hardest first.

    `setting`: its environment and tasks, if they are not procurl's own.
    """
    whole("episodes", episodes, 1)
    left_out = "".join(f"\n{failure}; left out" for failure in result.failures)
    result = without_failed(result)
    env, space = setting or rebuilt_env(result.config, noted(result.provenance))
    distinct, first = np.unique(result.held_out["context"], axis=0, return_index=True)
    tasks = Task(*(jnp.asarray(result.held_out[k][first]) for k in ("context", "seed", "row")))
    if actors(result.params):
        deterministic = True  # SAC, as the benchmark has it
    if isinstance(env, HostEnv):
        scores = _played_on_host(env, result, tasks, episodes)
    else:
        keys = jax.vmap(jax.random.key)(jnp.asarray(result.seeds, jnp.uint32))
        instances = space.fresh_seeds, space.fixed_tests
        run = jit(jax.vmap(lambda p, k: evaluate(env, p, tasks, k, episodes, deterministic, *instances)))
        try:
            scores = run(unflatten(result.params), keys)
        except (KeyError, TypeError, ValueError, IndexError) as reason:  # undamaged weights of another network
            raise RunFolderError(
                f"the weights of {result.label} are not of a student of this setting: {reason}"
            ) from reason

    ret = np.asarray(scores.ret)  # f32[S, H]
    mean, error = mean_and_error(ret)
    shown = (mean, error) if len(ret) > 1 else (mean,)
    names = [in_one_line(name) for name in result.config["space"]["names"]]
    rows = [
        [*(f"{c:.3f}" for c in distinct[i]), *(f"{x[i]:.3f}" for x in shown)] for i in np.argsort(mean, kind="stable")
    ]
    overall, overall_error = mean_and_error(ret.mean(axis=1))
    kind = "deterministic" if deterministic else "stochastic"
    seeds, spread = ("1 seed", "") if len(ret) == 1 else (f"{len(ret)} seeds", " (standard error over seeds)")
    return (
        f"{in_one_line(result.label)}, {seeds}, {episodes} episodes per task, {kind} policy\n"
        + text_table([*names, *("return", "+-")[: len(shown)]], rows)
        + f"\nmean over tasks: {with_error(overall, overall_error)}{spread}{left_out}"
    )


def without_failed(result: Result) -> Result:
    """The same run without the seeds that failed."""
    sound = ~result.failed
    if not sound.any():
        raise ConfigError(f"all {len(sound)} seeds failed: nothing to evaluate. {result.failures[0]}.")
    return dataclasses.replace(
        result,
        seeds=result.seeds[sound],
        task_ret=result.task_ret[sound],
        task_success=result.task_success[sound],
        trace={k: v[sound] for k, v in result.trace.items()},
        params={k: v[sound] for k, v in result.params.items()},
        failures=(),
    )


def _played_on_host(env: HostEnv, result: Result, tasks: Task, episodes: int) -> Scores:
    """The scores of students whose environment runs in worker processes."""
    from procurl.devices import available_cores
    from procurl.runs.host.engine import apart, score
    from procurl.runs.host.workers import Workers

    students = apart(actors(result.params), len(result.seeds))
    with closing(Workers(env.maker(), 0, available_cores())) as workers:
        return score(workers, students, jax.tree.map(np.asarray, tasks), episodes)
