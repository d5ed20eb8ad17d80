"""Tables in plain text: one run per task, or several runs beside each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np

from procurl.bench.stats import mean_and_error, with_error
from procurl.check.numbers import whole
from procurl.check.text import in_one_line
from procurl.errors import ConfigError, RunFolderError
from procurl.programs import jit
from procurl.runs.evaluation import Scores, evaluate
from procurl.runs.store.result import Result
from procurl.students.policy import actors, unflatten
from procurl.types import HostEnv, Task


def evaluate_run(result: Result, episodes: int, deterministic: bool) -> str:
    """Replay the held-out tasks of a run with its final students: mean return per task, hardest first."""
    from procurl.envs import make

    whole("episodes", episodes, 1)
    left_out = "".join(f"\n{failure}; left out" for failure in result.failures)
    result = without_failed(result)
    if not result.config["setting"]:
        raise ConfigError("this run was trained on an environment of its own; evaluate it with procurl.evaluate")
    fields = {k: v for k, v in result.config["env"].items() if k != "class"}
    env, space = make(result.config["setting"], **fields)
    distinct, first = np.unique(result.held_out["context"], axis=0, return_index=True)
    tasks = Task(*(jnp.asarray(result.held_out[k][first]) for k in ("context", "seed", "row")))
    if isinstance(env, HostEnv):
        deterministic = True  # as the benchmark has it
        scores = _played_on_host(env, result, tasks, episodes)
    else:
        keys = jax.vmap(jax.random.key)(jnp.asarray(result.seeds, jnp.uint32))
        run = jit(jax.vmap(lambda p, k: evaluate(env, p, tasks, k, episodes, deterministic, space.fresh_seeds)))
        try:
            scores = run(unflatten(result.params), keys)
        except (KeyError, TypeError, ValueError, IndexError) as reason:  # a file that is whole, and of something else
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
    seeds, over_seeds = ("1 seed", "") if len(ret) == 1 else (f"{len(ret)} seeds", " (standard error over seeds)")
    return (
        f"{in_one_line(result.label)}, {seeds}, {episodes} episodes per task, {kind} policy\n"
        + text_table([*names, *("return", "+-")[: len(shown)]], rows)
        + f"\nmean over tasks: {with_error(overall, overall_error)}{over_seeds}{left_out}"
    )


def without_failed(result: Result) -> Result:
    """The same run with the seeds alone that did not fail."""
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
    """The same for students that play in processes of their own."""
    from procurl.devices import available_cores
    from procurl.runs.host.engine import apart, score
    from procurl.runs.host.workers import Workers

    students = apart(actors(result.params), len(result.seeds))
    with closing(Workers(env.maker(), 0, available_cores())) as workers:
        return score(workers, students, jax.tree.map(np.asarray, tasks), episodes)


def comparison(results: dict[str, Result]) -> str:
    """Final return per run as a Markdown table, best first."""
    rows = []
    for name, result in results.items():
        sound = result.ret[~result.failed]
        if not len(sound):
            rows.append((float("-inf"), [name, "all seeds failed", "-"]))
            continue
        mean, error = mean_and_error(sound[:, -1])
        area, area_error = mean_and_error(sound.mean(axis=1))
        name += f" ({result.failed.sum()} of {len(result.seeds)} seeds failed)" if result.failed.any() else ""
        rows.append((float(mean), [name, with_error(mean, error), with_error(area, area_error)]))
    ordered = [row for _, row in sorted(rows, key=lambda r: -r[0])]
    return text_table(["teacher", "final return", "mean over training"], ordered)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in table]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)
