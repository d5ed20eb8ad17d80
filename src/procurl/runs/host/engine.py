"""The loop's engine for environments on the host: `iterate` is Algorithm 1 once more, with NumPy in its middle.

A SAC student learns on JAX's devices, all seeds side by side as in `Engine`; worker processes play. The student
does not see the context, so the teacher's values come from returns (`ReturnRegressor`, one per seed).

An episode is a function of its task and actions. So a checkpoint holds the actions of the running episodes, and a
resumed run plays them again.

A seed that has failed (see `diagnosis.py`) rests: its members are no longer played, since an environment outside of JAX
may do anything with a NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from procurl.config import Config
from procurl.devices import available_cores
from procurl.envs.host_tasks import HostTask
from procurl.errors import ConfigError
from procurl.programs import kind
from procurl.runs.evaluation import Scores
from procurl.runs.host.member import Actor, Steps
from procurl.runs.host.program import HostProgram, program_for
from procurl.runs.host.records import AllSteps, Running, episodes_of, host_tasks, of_seed, places_of
from procurl.runs.host.workers import Workers
from procurl.runs.interrupt import CompiledInThread
from procurl.runs.seeds import Seeds, fastest
from procurl.runs.store.state import arranged, named
from procurl.runs.trace import Trace, is_sound
from procurl.students import replay
from procurl.students.regressor import ReturnRegressor
from procurl.students.trainee import Trainee
from procurl.students.transitions import as_transitions, row_width
from procurl.types import Continuous, HostEnv, Task, Teacher


class HostCarry(NamedTuple):
    """What carries over to the next iteration. The environments, in the workers, stand where `running` says."""

    teacher: Any
    learner: Trainee
    running: Running
    values: tuple[ReturnRegressor, ...]  # one per seed
    alive: Any  # bool[S]  has not failed


class HostEngine:
    """Like `procurl.runs.engine.Engine`. `workers` processes play, by default one per core; results are the same."""

    def __init__(
        self, env: HostEnv, teacher: Teacher, config: Config, seeds: tuple[int, ...], workers: int | None = None
    ) -> None:
        if config.sac is None or not isinstance(env.action, Continuous):
            raise ConfigError(
                f"{type(env).__name__} is played on the host, where the student is SAC with continuous actions: give "
                f"Config(sac=procurl.SAC()) and an environment with Continuous actions"
            )
        self.env, self.sac, self.numbers, self.teacher = env, config.sac, seeds, teacher
        self.episodes_per_task = config.evaluation_episodes
        self.seeds = Seeds(seeds)
        self.world = self.seeds.share(teacher)
        sizes = (env.obs_size, env.action.size)
        programs = program_for(config.sac, sizes, self.seeds.mesh, kind(self.world))
        self._program = HostProgram(*map(CompiledInThread, programs))
        self.workers = Workers(env.maker(), len(seeds) * config.sac.n_envs, workers or available_cores())

    # --- one iteration ---

    def begin(self) -> HostCarry:
        teacher, learner, tasks = self._program.begin(self.seeds.keys, None, 0, self.world)
        s, n, a = self.seeds.n, self.sac.n_envs, self.env.action.size
        running = Running(
            self.seeds.to_host(tasks),
            ret=np.zeros((s, n), np.float32),
            length=np.zeros((s, n), np.int32),
            actions=np.zeros((s, n, self.env.max_steps, a), np.float32),
        )
        alive = np.ones(s, bool)
        self._send_to_start(running, alive)
        return HostCarry(teacher, learner, running, self._regressors(), alive)

    def iterate(self, carry: HostCarry, t: int) -> tuple[HostCarry, Trace]:
        """Iteration t. The carry passed in must not be used again."""
        keys, (teacher, learner, running, values, alive) = self.seeds.keys, carry
        tasks = self.seeds.to_host(self._program.propose(keys, teacher, t, self.world))  # 1. the teacher picks
        running, steps, episodes = self._play(learner, running, tasks, t, alive)  # 2. the student plays
        rows = self.seeds.put(steps.rows)
        learner, losses = self._program.learn((keys, rows), learner, t, self.world)  # 3. it learns
        episodes = self._value_returns(values, episodes, alive, steps=(t + 1) * self.sac.n_steps)
        episodes, slot, models = self.seeds.put((episodes, steps.slot, _stacked([v.model for v in values])))
        given = (teacher, episodes, rows, slot, models, losses, learner.student.networks)
        teacher, trace = self._program.watch(keys, given, t, self.world)  # 4. the teacher watches
        trace = self.seeds.to_host(trace)
        return HostCarry(teacher, learner, running, values, alive & is_sound(trace)), trace

    def _play(
        self, learner: Trainee, running: Running, tasks: Any, t: int, alive: Any
    ) -> tuple[Running, AllSteps, Any]:
        """Every member plays its share of the steps. From the queue, member i takes the places i, i + N, i + 2 N ..."""
        n, share = self.sac.n_envs, self.sac.n_steps // self.sac.n_envs
        at_random = t * self.sac.n_steps < self.sac.start_steps
        astray = self._astray(running.task, tasks)
        plays = alive & ~astray.any(axis=1)
        jobs = [
            (s, host_tasks(tasks, s, slice(i, None, n)), share if plays[s] else 0, (seed, t, i), at_random)
            for s, seed in enumerate(self.numbers)
            for i in range(n)
        ]
        played = self.workers.play(self._actors(learner), jobs)
        rows = np.zeros((len(played), share, row_width(self.env.obs_size, self.env.action.size)), np.float32)
        slot = np.full((len(played), share), -1, np.int32)
        for k, p in enumerate(played):
            rows[k, : len(p.rows)] = p.rows
            slot[k, : sum(p.steps)] = np.repeat(places_of(p, k % n, n), p.steps)
        episodes = _stacked([episodes_of(running, tasks, played[s * n : (s + 1) * n], s) for s in range(self.seeds.n)])
        episodes.started[...] |= (
            alive[:, None] & astray
        )  # not playable: marked as started, so that the trace reports them
        steps = AllSteps(rows.reshape(self.seeds.n, self.sac.n_steps, -1), slot.reshape(self.seeds.n, -1))
        return self._advanced(running, played, tasks), steps, episodes

    def _astray(self, *tasks: Any) -> Any:
        """Which contexts are outside the space, or NaN: bool[S, tasks]."""
        contexts = np.concatenate([task.context for task in tasks], axis=1)
        return ~np.asarray(self.teacher.space.inside(contexts)).all(axis=2)

    def _advanced(self, running: Running, played: list[Steps], tasks: Any) -> Running:
        """Where the members stand afterwards."""
        n = self.sac.n_envs
        task, ret, length = jax.tree.map(np.copy, running[:3])
        for k, steps in enumerate(played):
            s, i = divmod(k, n)
            new = len(steps.ret) - 1  # episodes that began
            if new:
                place = i + (new - 1) * n
                for field, queue in zip(task[:3], tasks[:3], strict=True):
                    field[s, i] = queue[s, place]
            ret[s, i], length[s, i] = steps.ret[-1], steps.length[-1]
            actions = as_transitions(steps.rows, self.env.obs_size).action
            latest = actions[len(actions) - steps.steps[-1] :]
            running.actions[s, i, length[s, i] - len(latest) : length[s, i]] = latest
        return Running(task, ret, length, running.actions)

    def _value_returns(self, values: tuple[ReturnRegressor, ...], episodes: Any, alive: Any, steps: int) -> Any:
        """Record the returns in the regressors, and fit those that are due.

        An episode's `gae` is its return minus the value that its task had before: PLR's score here. It is NaN while the
        episode runs, and until the first fit.
        """
        for s, value in enumerate(values):
            ended = np.flatnonzero(episodes.finished[s])
            contexts, returns = episodes.task.context[s, ended], episodes.ret[s, ended]
            if not (alive[s] and np.isfinite(returns).all()):
                continue
            if value.fits:
                blank = np.full(len(ended), -1, np.int32)
                episodes.gae[s, ended] = returns - value(Task(contexts, blank, blank))  # type: ignore[arg-type]
            for context, ret in zip(contexts, returns, strict=True):
                value.record(context, ret)
            due = self.sac.first_fit + value.fits * self.sac.fit_every
            if steps >= due and value.episodes >= 5:
                with jax.default_device(jax.local_devices(backend="cpu")[0]):  # thousands of tiny steps
                    value.fit()
        np.abs(episodes.gae, out=episodes.abs_gae)
        return episodes

    # --- evaluation ---

    def evaluate(self, carry: HostCarry, t: int) -> Scores:
        """The students on the held-out tasks, with their most likely actions."""
        held_out, repeats = jax.tree.map(np.asarray, self.teacher.space.held_out), self.episodes_per_task
        actors = self._actors(carry.learner)
        scores = score(self.workers, [actors[s] for s in np.flatnonzero(carry.alive)], held_out, repeats)

        def of_all(x: Any) -> Any:
            whole = np.full((self.seeds.n, x.shape[1]), np.nan, np.float32)
            whole[carry.alive] = x
            return whole

        return Scores(*map(of_all, scores))

    def teacher_seconds(self, carry: HostCarry, repeats: int = 5) -> float:
        """How long one iteration's teacher calls take for all seeds, compiled alone: the fastest of a few runs."""
        keys, models = self.seeds.keys, self.seeds.put(_stacked([v.model for v in carry.values]))
        return fastest(lambda: self._program.only_teach(keys, (carry.teacher, models), 0, self.world), repeats)

    def params(self, carry: HostCarry) -> Any:
        return self.seeds.to_host(carry.learner.student.networks)._asdict()

    def _actors(self, learner: Trainee) -> list[Actor]:
        return apart(self.seeds.to_host(learner.student.networks.actor), self.seeds.n)

    # --- checkpoints ---

    def saved(self, carry: HostCarry) -> dict[str, np.ndarray]:
        """All that a checkpoint needs: of buffer and actions, only the parts in use."""
        state = {"teacher": carry.teacher, "learner": carry.learner, "running": carry.running, "alive": carry.alive}
        host = self.seeds.to_host(state)
        running = host["running"]
        host["learner"] = host["learner"]._replace(buffer=replay.trimmed(host["learner"].buffer))
        host["running"] = running._replace(actions=running.actions[:, :, : running.length.max()])
        return named({**host, "values": [v.state_dict() for v in carry.values]})

    def restored(self, tensors: dict[str, np.ndarray], where: str) -> HostCarry:
        """The inverse of `saved`; the members replay their running episodes up to where they stood."""
        begun = self._program.begin.eval_shape(self.seeds.keys, None, 0, self.world)
        teacher, learner, tasks = self.seeds.shapes(begun)
        s, n, a = self.seeds.n, self.sac.n_envs, self.env.action.size
        tensors = {"alive": np.ones(s, bool), **tensors}  # an earlier version ended a run with its first failed seed
        longest = int(tensors.get("running.length", np.zeros(1)).max())
        trimmed = replay.trimmed_shape(learner.buffer, tensors.get("learner.buffer.added", 0))
        values = self._regressors()
        like = {
            "teacher": teacher,
            "learner": learner._replace(buffer=trimmed),
            "running": Running(
                tasks,
                ret=jax.ShapeDtypeStruct((s, n), jnp.float32),
                length=jax.ShapeDtypeStruct((s, n), jnp.int32),
                actions=jax.ShapeDtypeStruct((s, n, longest, a), jnp.float32),
            ),
            "values": [_shapes_of(v, tensors, k) for k, v in enumerate(values)],
            "alive": jax.ShapeDtypeStruct((s,), jnp.bool_),
        }
        state = arranged(tensors, like, where)
        learner = state["learner"]._replace(buffer=replay.widened(state["learner"].buffer, self.sac.capacity))
        actions = np.zeros((s, n, self.env.max_steps, a), np.float32)
        actions[:, :, :longest] = state["running"].actions
        running = jax.tree.map(np.array, state["running"]._replace(actions=actions))
        for value, found in zip(values, state["values"], strict=True):
            value.load_state_dict(found)
        self._send_to_start(running, state["alive"])
        teacher, learner = self.seeds.put((state["teacher"], learner))
        return HostCarry(teacher, learner, running, values, state["alive"])

    def close(self) -> None:
        self.workers.close()

    def _send_to_start(self, running: Running, alive: Any) -> None:
        """Bring the members to where `running` says. Those that rest begin an arbitrary task, which they never play."""
        tasks = [task for s in range(self.seeds.n) for task in host_tasks(running.task, s, slice(None))]
        lengths, actions = running.length.ravel(), running.actions.reshape(-1, *running.actions.shape[2:])
        taken = [actions[:n] for actions, n in zip(actions, lengths, strict=True)]
        rests = ~(alive[:, None] & ~self._astray(running.task)).ravel()
        some = host_tasks(jax.tree.map(lambda x: np.asarray(x)[None, :1], self.teacher.space.pool), 0, slice(None))[0]
        for k in np.flatnonzero(rests):
            tasks[k], taken[k] = some, []
        self.workers.begin(tasks, taken)

    def _regressors(self) -> tuple[ReturnRegressor, ...]:
        """As in the paper's released code: raw contexts and returns, fitted from time to time."""
        return tuple(ReturnRegressor(self.teacher.space, every=None, scale=False, seed=seed) for seed in self.numbers)


def apart(tree: Any, n_seeds: int) -> list[Any]:
    """One tree per seed, out of a tree with a leading axis of seeds."""
    return [of_seed(tree, s) for s in range(n_seeds)]


def score(workers: Workers, actors: list[Actor], held_out: Any, repeats: int) -> Scores:
    """Means over `repeats` episodes of every task, f32[S, H]: each repetition is another instance of the context."""
    s, h = len(actors), len(held_out.seed)
    tasks = [
        HostTask(held_out.context[k], int(held_out.seed[k]) + r * h, int(held_out.row[k]))
        for k in range(h)
        for r in range(repeats)
    ]
    episodes = workers.episodes(actors, [(number, task) for number in range(s) for task in tasks])
    means = np.array(episodes, np.float64).reshape(s, h, repeats, 3).mean(axis=2).astype(np.float32)
    ret, success, length = np.moveaxis(means, -1, 0)
    return Scores(ret, success, length)  # type: ignore[arg-type]


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *trees)


def _shapes_of(value: ReturnRegressor, tensors: dict[str, np.ndarray], k: int) -> Any:
    """A regressor's state, with as many episodes as were saved."""
    found = value.state_dict()
    n = len(tensors.get(f"values.{k}.returns", ()))
    d = found["contexts"].shape[1]
    return {**found, "contexts": np.zeros((n, d), np.float32), "returns": np.zeros(n, np.float32)}
