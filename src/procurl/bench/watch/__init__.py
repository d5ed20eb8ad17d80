"""`procurl watch`: a trained student at work on tasks of its setting, as an animation.

Every task has an environment of its own, and all are played in step: a frame shows them side by side, each with its
context, the step, the return so far and how it ended. Environments are those of Gymnasium's registry (`procurl/...`),
so that one loop serves what runs in JAX and what runs in Box2D; a user's own is made into one (`own.py`). Drawing and
files are in `film.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from procurl import suites
from procurl.bench.watch import film
from procurl.bench.watch.film import FAINT, GREEN, RED, Film, Frame, Line, Panel
from procurl.bench.watch.own import own_view
from procurl.envs.host_tasks import HostTask, TaskDesk
from procurl.errors import ConfigError, unknown_name
from procurl.runs.provenance import own_parts, rebuilt_env
from procurl.runs.store import disk
from procurl.runs.store.classes import noted
from procurl.runs.store.result import Result, load_policy, load_result, steps_per_iteration
from procurl.types import TaskSpace

CHOICES = ("target", "hardest", "easiest", "random")
EPISODES = 3  # side by side, unless asked otherwise
MOST_EPISODES = 12
MOST_FRAMES = 240
COLUMNS = 3
WIDTH, NARROW = {1: 480, 2: 400}, 312  # pixels of a picture, of one, two or more; MiniG's two rooms are 312 wide


class Chosen(NamedTuple):
    """A task to play, and where it comes from."""

    task: HostTask
    origin: str


@dataclass
class Episode:
    """One task being played: what its panel tells."""

    env: Any
    chosen: Chosen
    obs: Any
    about: str  # the context in words
    caption: list[str]  # the same in lines
    steps: int = 0
    ret: float = 0.0
    success: bool = False
    ended: bool = False
    _last: Frame | None = None

    def step(self, policy: Any, deterministic: bool) -> None:
        action = policy.predict(self.obs, deterministic=deterministic)
        self.obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.ret += float(reward)
        self.success = self.success or bool(info["is_success"])  # once is enough, as in the evaluation
        self.ended = bool(terminated or truncated)

    def panel(self) -> Panel:
        picture = self._last if self._last is not None else self.env.render()
        if self.ended:
            self._last = picture  # nothing moves any more
        lines = [Line(self.chosen.origin, FAINT), *(Line(text) for text in self.caption)]
        return Panel(picture, [*lines, Line(f"step {self.steps}   return {self.ret:.2f}"), self._state()])

    def _state(self) -> Line:
        if not self.ended:
            return Line("playing", FAINT)
        return Line("success", GREEN) if self.success else Line("ended without success", RED)


def watch(
    run: str | Path,
    out: str | Path,
    *,
    tasks: str | None = None,
    contexts: Sequence[Sequence[float]] = (),
    seed: int | None = None,
    episodes: int | None = None,
    deterministic: bool = True,
    frames: int = MOST_FRAMES,
    fps: float | None = None,
    setting: tuple[Any, TaskSpace] | None = None,
) -> list[Episode]:
    """Play tasks with a run's student and write the animation; the episodes as they ended.

    Args:
        run: a run folder.
        out: the animation, `.gif` or `.mp4`.
        tasks: "target" (the default): the first held-out target tasks; "hardest" and "easiest": the held-out tasks
            with the lowest and highest return in this seed's last evaluation; "random": from the training pool.
        contexts: play these instead.
        seed: whose student; by default the one with the best last evaluation.
        episodes: how many tasks (default 3), or how many instances of every given context (default 1).
        deterministic: the most likely action, or one as in training.
        frames: at most; where an episode has more steps, only every second, fourth, ... one is drawn.
        fps: frames per second; by default the environment's own.
        setting: environment and tasks of a run that has its own; see `own.py` for what such an environment needs.
    """
    out, movie = Path(out), Film(frames)
    film.checked_suffix(out)
    if fps is not None and not 0 < fps <= 60:
        raise ConfigError(f"fps = {fps:g}: expected more than 0 and at most 60")
    result = load_result(run)
    if result.failed.all():
        raise ConfigError(f"{run} holds no student: all of its seeds failed. {result.failures[0]}.")
    notes = noted(result.provenance)
    is_suite = suites.is_of_suite(result.config["setting"], result.config["env"]["class"])
    is_own = is_suite or "env" in own_parts(result.config, notes)
    setting_of = cache(lambda: setting or rebuilt_env(result.config, notes))
    if is_own:
        setting_of()  # refused at once if it was not given
    row = student_row(result, run, seed)
    if contexts:
        chosen = given_tasks(setting_of()[1], contexts, episodes)
    else:
        chosen = chosen_tasks(result, lambda: setting_of()[1], tasks, row, episodes)
    if contexts and tasks is not None:
        raise ConfigError(f"tasks = {tasks} beside contexts: expected one of the two")
    disk.made_folder(out.parent)  # before the work, in case it cannot be made
    policy = load_policy(run, int(result.seeds[row]))
    width = WIDTH.get(len(chosen), NARROW)
    viewed = partial(own_view, setting_of()[0]) if is_own else partial(environment, result.config)
    played = [begin(result, viewed(), one, number, width) for number, one in enumerate(chosen)]
    try:
        speed = fps or min(float(played[0].env.metadata["render_fps"]), 50.0)
        play(played, policy, deterministic, movie, width)
    finally:
        for episode in played:
            episode.env.close()
    movie.save(out, speed, title(result, row, deterministic, movie.every))
    return played


def play(played: Sequence[Episode], policy: Any, deterministic: bool, movie: Film, width: int) -> None:
    """All episodes to their end, one step of each at a time."""
    first = [episode.panel() for episode in played]
    columns = min(len(played), COLUMNS)
    height = round(max(min(1.0, width / p.picture.shape[1]) * p.picture.shape[0] for p in first))
    lines = max(len(p.caption) for p in first)

    def frame(panels: Sequence[Panel]) -> Frame:
        return film.side_by_side(panels, columns, (width, height), lines)

    movie.add(frame(first))
    step = 0
    while not all(episode.ended for episode in played):
        step += 1
        for episode in played:
            if not episode.ended:
                episode.step(policy, deterministic)
        if movie.wants(step):
            movie.add(frame([episode.panel() for episode in played]))
    movie.end(frame([episode.panel() for episode in played]))


def student_row(result: Result, run: str | Path, seed: int | None) -> int:
    """The row of the seed that was named, or of the best one."""
    seeds = [int(s) for s in result.seeds]
    if seed is None:
        seed = seeds[int(np.nanargmax(result.ret[:, -1]))]
    if seed not in seeds:
        raise ConfigError(f"seed {seed} is not in {run}: it holds the seeds {seeds}")
    row = seeds.index(seed)
    if not all(np.isfinite(weights[row]).all() for weights in result.params.values()):
        why = "".join(f" {failure}." for failure in result.failures if failure.seed == seed)
        raise ConfigError(f"seed {seed} of {run} has weights that are NaN or infinite: nothing to watch.{why}")
    return row


def chosen_tasks(
    result: Result, space: Callable[[], TaskSpace], tasks: str | None, row: int, episodes: int | None
) -> list[Chosen]:
    tasks, n = tasks or CHOICES[0], EPISODES if episodes is None else episodes
    if tasks not in CHOICES:
        raise unknown_name("choice of tasks", tasks, CHOICES)
    if tasks == "random":
        source, name = {k: np.asarray(v) for k, v in space().pool.arrays().items()}, "training task"
        order = np.random.default_rng(int(result.seeds[row])).permutation(len(source["seed"]))
    else:
        source, name = result.held_out, "target task"
        final = result.task_ret[row, -1]  # f32[H]
        order = {
            "target": np.arange(len(final)),
            "hardest": np.argsort(final, kind="stable"),
            "easiest": np.argsort(-final, kind="stable"),
        }[tasks]
    require_count(n, min(MOST_EPISODES, len(order)))
    return [
        Chosen(HostTask(source["context"][i], int(source["seed"][i]), int(source["row"][i])), f"{name} {i}")
        for i in order[:n]
    ]


def given_tasks(space: TaskSpace, contexts: Sequence[Sequence[float]], episodes: int | None) -> list[Chosen]:
    n = 1 if episodes is None else episodes
    require_count(n * len(contexts), MOST_EPISODES)
    desk = TaskDesk(np.asarray(space.low), np.asarray(space.high), space.names)
    playable = [np.asarray(space.project(jnp.asarray(desk.task(context).context))) for context in contexts]
    return [
        Chosen(desk.task(context, task_seed=k), f"given context, instance {k}")
        for context in playable
        for k in range(n)
    ]


def require_count(n: int, most: int) -> None:
    if not 1 <= n <= most:
        raise ConfigError(f"{n} episodes side by side: expected 1 to {most}")


def begin(result: Result, env: Any, chosen: Chosen, number: int, width: int) -> Episode:
    """A new environment in the task's first state; `number` seeds the noise of its steps."""
    task = chosen.task
    options = {"context": task.context, "task_seed": task.seed, "task_row": task.row}
    obs, _ = env.reset(seed=number, options=options)
    words = context_words(result.config, task.context)
    lines = [line for part in words for line in film.wrapped(part, width)]
    return Episode(env, chosen, obs, ", ".join(words), lines)


def environment(config: dict[str, Any]) -> Any:
    """The environment of a run, with pictures."""
    from procurl.integrations import gymnasium as ours

    setting = config["setting"]
    fields = {name: value for name, value in config["env"].items() if name != "class"}
    if setting == "minigrid":
        from procurl.bench.watch.minigrid import MiniGridView

        return MiniGridView()
    if setting == "bipedal-jax":
        from procurl.envs.bipedal.jax_walker.env import JaxWalker

        return own_view(JaxWalker(**fields))
    if setting == "bipedal":
        return ours.gymnasium.make(
            "procurl/StumpTracks-v0", render_mode="rgb_array", disable_env_checker=True, **fields
        )
    env_id = next(name for name, (family, _) in ours.REGISTERED.items() if setting.startswith(family))
    return ours.gymnasium.make(env_id, setting=setting, render_mode="rgb_array", disable_env_checker=True, **fields)


def context_words(config: dict[str, Any], context: Any) -> list[str]:
    """The context by name. MiniG's bits say which mission it is and which skills that takes."""
    names = [name.replace("_", " ") for name in config["space"]["names"]]
    if config["setting"] != "minigrid":
        return [f"{name} {value:.2f}" for name, value in zip(names, context, strict=True)]
    from procurl.envs.minigrid.families import FAMILIES, nearest_family

    mission = FAMILIES[int(nearest_family(np.asarray(context)))].name  # type: ignore[arg-type]  # NumPy's will do
    return [mission, ", ".join(name for name, bit in zip(names, context, strict=True) if bit)]


def title(result: Result, row: int, deterministic: bool, every: int) -> str:
    rank = {1: "", 2: ", every 2nd step"}.get(every, f", every {every}th step")
    how = "" if deterministic else ", actions drawn as in training"
    iterations = result.trace["started"].shape[1] if result.trace else 0  # a run that was cut trained beyond its scores
    trained = iterations * steps_per_iteration(result.config)
    return f"{result.label}, seed {result.seeds[row]} after {trained:,} steps{how}{rank}"
