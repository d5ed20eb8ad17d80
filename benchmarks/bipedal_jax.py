"""The walker in JAX against the walker in Box2D: does it do the same, and how fast?

    pip install "procurl[box2d]"
    python benchmarks/bipedal_jax.py fidelity --policy RUN --out benchmarks/results/bipedal-jax-fidelity.md
    python benchmarks/bipedal_jax.py speed --walkers 16,128,1280

`fidelity` plays episodes in Box2D, with random actions and with the policies of trained runs (`procurl train bipedal
--out RUN`), on tracks of all heights and spacings, and repeats every step in JAX from Box2D's state before it
(`beside_box2d.py`). What must hold: the 95th percentile of the error of every observation below 1e-3, contact flags
equal in more than 99 % of steps, and episodes that end in the same step. Steps in which a body touches a stump are a
row of their own; whole episodes are compared by `bipedal_policies.py`. `speed` steps both in turn with random actions,
and gives steps per second of the clock and of the processor; an ended episode is begun anew. On a machine without
Box2D, `--alone` steps the walker in JAX only; on a GPU without and with a kernel for every loop of the solver.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine_line

import procurl

Policy = Callable[[np.ndarray], np.ndarray]
NAMES = [
    "hull angle", "hull spin", "speed x", "speed y", "hip 1", "hip 1 speed", "knee 1", "knee 1 speed", "contact 1",
    "hip 2", "hip 2 speed", "knee 2", "knee 2 speed", "contact 2", *(f"lidar {i}" for i in range(10)),
]  # fmt: skip
FLAGS, LIDAR = [8, 13], slice(14, 24)
NUMBERS = [k for k in range(24) if k not in FLAGS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    fidelity = parts.add_parser("fidelity")
    fidelity.add_argument("--policy", action="append", default=[], help="folder of a trained run; may be repeated")
    fidelity.add_argument("--steps", type=int, default=25_000, help="at least so many, half of them random")
    fidelity.add_argument("--out", type=Path, help="Markdown file")
    speed = parts.add_parser("speed")
    speed.add_argument("--walkers", type=lambda text: [int(n) for n in text.split(",")], default=[16, 128, 1280])
    speed.add_argument("--turns", type=int, default=3)
    speed.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    speed.add_argument("--alone", action="store_true", help="without Box2D")
    args = parser.parse_args()
    procurl.use_cores(device=getattr(args, "device", "cpu"))
    compare(args) if args.part == "fidelity" else race(args)


# --- fidelity


def compare(args: argparse.Namespace) -> None:
    rng, batch, horizon = np.random.default_rng(0), 64, 250
    sources: dict[str, list[tuple[Any, Any]]] = {"random": []}
    want = args.steps // 2 if args.policy else args.steps
    while played(sources["random"]) < want:
        turn = len(sources["random"])
        contexts = np.float32(rng.uniform([-3, 0], [3, 6], (batch, 2)))
        # Random actions hardly leave the start pad, so every other batch begins amid the stumps, over low ones.
        contexts[:, 0] = rng.uniform(-1, 1.2, batch) if turn % 2 else contexts[:, 0]
        sources["random"].append(beside_each_other(contexts, held(rng, batch), horizon, turn, ahead=6.5 * (turn % 2)))
    for k, folder in enumerate(args.policy):
        name = f"trained {k + 1}" if len(args.policy) > 1 else "trained"
        sources[name] = []
        while played(sources[name]) < args.steps / 2 / len(args.policy):
            turn = 1000 * (k + 1) + len(sources[name])
            contexts = np.float32(rng.uniform([-3, 0], [3, 6], (batch, 2)))
            sources[name].append(beside_each_other(contexts, trained(folder, rng), 800, turn))

    lines = [
        "| steps | number | obs. error: median | 95 % | 99 % | contact flags equal | lidar, 95 % | reward, 95 % "
        "| same end of the episode |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    everything = Steps.of([pair for pairs in sources.values() for pair in pairs])
    rows = {name: Steps.of(pairs) for name, pairs in sources.items()} | {"all": everything}
    for name, steps in rows.items():
        lines += [steps.row(name, steps.all()), steps.row(f"{name}, touching a stump", steps.on_stump)]
    lines += [everything.row("all, last of an episode", everything.ended)]
    lines += ["", "95th percentiles by observation: " + everything.by_observation(), ""]
    lines += [everything.verdict(), "", first_observations(sources), "", machine_line("gymnasium", "box2d")]
    text = "\n".join(lines)
    print(text)
    if args.out:
        command = "python benchmarks/bipedal_jax.py fidelity" + " --policy RUN" * len(args.policy)
        args.out.write_text(f"# One step ahead of Box2D\n\n`{command} --steps {args.steps}`\n\n{text}\n")


def held(rng: np.random.Generator, n: int) -> Policy:
    """Random actions, each held for five steps on average: the walker sways and falls in all ways."""
    action = rng.uniform(-1, 1, (n, 4))

    def policy(obs: np.ndarray) -> np.ndarray:
        action[:] = np.where(rng.random((n, 1)) < 0.2, rng.uniform(-1, 1, (n, 4)), action)
        return action.copy()

    return policy


def trained(folder: str, rng: np.random.Generator) -> Policy:
    """A run's policy; in half of the episodes it acts at random, as in training."""
    policy = procurl.load_policy(folder)

    def act(obs: np.ndarray) -> np.ndarray:
        half = len(obs) // 2
        return np.concatenate([policy.predict(obs[:half]), policy.predict(obs[half:], deterministic=False)])

    return act


def beside_each_other(contexts: np.ndarray, policy: Policy, steps: int, turn: int, ahead: float = 0.0) -> Any:
    import beside_box2d as beside
    import jax

    recorded = beside.record(contexts, policy, steps, first_seed=10_000 * turn, ahead=ahead)
    repeated = jax.tree.map(np.asarray, beside.repeat(recorded))
    if ahead:
        recorded.played[0] = False  # moved by hand: Box2D has not noticed yet what it stands on
    return recorded, repeated


def played(pairs: list[tuple[Any, Any]]) -> int:
    return sum(int(recorded.played.sum()) for recorded, _ in pairs)


class Steps:
    """Played steps in one row each, of Box2D and of JAX."""

    def __init__(self, obs: np.ndarray, reward: np.ndarray, late: np.ndarray, on_stump: np.ndarray, ended: np.ndarray):
        self.obs = obs  # f32[n, 24]  absolute errors
        self.reward = reward  # f32[n]  absolute errors
        self.late = late  # bool[n]  one says that the episode ends here, the other does not
        self.on_stump, self.ended = on_stump, ended  # bool[n]

    @classmethod
    def of(cls, pairs: list[tuple[Any, Any]]) -> Steps:
        parts: list[list[np.ndarray]] = [[], [], [], [], []]
        for box2d, jax_ in pairs:
            there = box2d.played
            ends_here, ends_there = box2d.terminated & there, jax_.terminated & there
            values = (
                np.abs(jax_.obs - box2d.obs), np.abs(jax_.reward - box2d.reward),
                ends_here != ends_there, box2d.on_stump, ends_here,
            )  # fmt: skip
            for part, value in zip(parts, values, strict=True):
                part.append(value[there])
        return cls(*(np.concatenate(part) for part in parts))

    def all(self) -> np.ndarray:
        return np.ones(len(self.obs), bool)

    def row(self, name: str, where: np.ndarray) -> str:
        if not where.any():
            return f"| {name} | 0 | | | | | | | |"
        obs, reward = self.obs[where], self.reward[where]
        median, most, nearly_all = (np.percentile(obs[:, NUMBERS], q, axis=0).max() for q in (50, 95, 99))
        flags = np.mean(obs[:, FLAGS] < 0.5)
        lidar = np.percentile(obs[:, LIDAR], 95, axis=0).max()
        return (
            f"| {name} | {where.sum():,} | {median:.1e} | {most:.1e} | {nearly_all:.1e} | {flags:.2%} | {lidar:.1e} "
            f"| {np.percentile(reward, 95):.1e} | {1 - self.late[where].mean():.2%} |"
        )

    def by_observation(self) -> str:
        errors = np.percentile(self.obs, 95, axis=0)
        return ", ".join(f"{NAMES[k]} {errors[k]:.0e}" for k in NUMBERS)

    def verdict(self) -> str:
        worst = np.percentile(self.obs[:, NUMBERS], 95, axis=0).max()
        flags = np.mean(self.obs[:, FLAGS] < 0.5)
        holds = worst < 1e-3 and flags > 0.99 and not self.late.any()
        return (
            f"{'Holds' if holds else 'DOES NOT HOLD'}: worst 95th percentile {worst:.1e} (must be below 1e-3), flags "
            f"equal in {flags:.3%} (above 99 %), {self.late.sum()} of {self.ended.sum():,} ends of episodes in another "
            "step."
        )


def first_observations(sources: dict[str, list[tuple[Any, Any]]]) -> str:
    worst = max(np.abs(jax_.first_obs - box2d.first_obs).max() for pairs in sources.values() for box2d, jax_ in pairs)
    n = sum(len(box2d.first_obs) for pairs in sources.values() for box2d, _ in pairs)
    return f"First observations of {n:,} episodes: largest error {worst:.1e}."


# --- speed


def race(args: argparse.Namespace) -> None:
    if args.alone:
        alone(args)
        return
    print(
        f"{'walkers':>8} {'steps/s':>10} {'a CPU second':>13} {'Box2D, one core':>16} {'a CPU second':>13} {'ratio':>6}"
    )
    for n in args.walkers:
        walkers = JaxRunner(n)
        turns = [(walkers.run(max(10, 20_000 // n)), run_box2d(2_000, seed)) for seed in range(args.turns)]
        ours = [statistics.median(a[k] for a, _ in turns) for k in (0, 1)]
        theirs = [statistics.median(b[k] for _, b in turns) for k in (0, 1)]
        ratio = statistics.median(a[1] / b[1] for a, b in turns)
        print(f"{n:8} {ours[0]:10,.0f} {ours[1]:13,.0f} {theirs[0]:16,.0f} {theirs[1]:13,.0f} {ratio:6.2f}", flush=True)
    print(f"\nratio: of steps in a CPU second; {machine_line('gymnasium', 'box2d')}")


def alone(args: argparse.Namespace) -> None:
    """Without Box2D. On a GPU without and with kernels for the solver's loops: are the walkers the same?"""
    from procurl.envs.bipedal.jax_walker import kernel

    ways = {"plain": False, "a kernel for every loop": True}
    for n in args.walkers:
        plain = None
        for how, kernel.ON in ways.items() if args.device == "gpu" else [("plain", False)]:
            began = time.perf_counter()
            walkers = JaxRunner(n)
            first = walkers.first_returns()
            rate = statistics.median(walkers.run(max(10, 20_000 // n))[0] for _ in range(args.turns))
            seconds = time.perf_counter() - began
            print(f"{n:8} walkers, {how}: {rate:,.0f} steps/s, after {seconds:.0f} s in all", flush=True)
            if plain is not None:
                apart = np.abs(first - plain[0])
                print(
                    f"{'':8} {rate / plain[1]:.2f} times as fast; rewards of a first step differ by {apart.max():.1e}"
                )
            plain = plain or (first, rate)
    print(machine_line())


class JaxRunner:
    """N walkers with random actions, all steps in one program, as in training: who has ended begins anew."""

    def __init__(self, n: int) -> None:
        import jax
        import jax.numpy as jnp

        env, space = procurl.make("bipedal-jax")
        self.n, self.key, self.env = n, jax.random.key(0), env

        def step(carry: Any, key: Any) -> Any:
            k_action, k_task, k_step = jax.random.split(key, 3)
            action = jax.random.uniform(k_action, (n, 4), minval=-1.0)
            state, outcome = jax.vmap(env.step, in_axes=(None, 0, 0))(k_step, carry, action)
            fresh, _ = jax.vmap(env.reset)(space.from_pool(k_task, jax.random.randint(k_task, (n,), 0, 1000)))
            ended = outcome.terminated | outcome.truncated

            def pick(a: Any, b: Any) -> Any:
                return jnp.where(ended.reshape(-1, *[1] * (a.ndim - 1)), a, b)

            return jax.tree.map(pick, fresh, state), outcome.reward.sum()

        self.state, _ = jax.jit(jax.vmap(env.reset))(space.from_pool(self.key, jnp.arange(n) % 1000))
        self.play = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))

    def first_returns(self) -> np.ndarray:
        """f32[n]: what the walkers get for one step of full action, in a fresh program."""
        import jax
        import jax.numpy as jnp

        step = jax.jit(
            lambda state: jax.vmap(self.env.step, in_axes=(None, 0, 0))(self.key, state, jnp.ones((self.n, 4)))
        )
        return np.asarray(step(self.state)[1].reward)

    def run(self, steps: int) -> tuple[float, float]:
        """Steps per second of the clock and of the processor."""
        import jax

        keys = jax.random.split(self.key, steps)
        self.state, total = self.play(self.state, keys)  # compiles, and spreads the walkers over their episodes
        jax.block_until_ready(total)
        began, began_cpu = time.perf_counter(), time.process_time()
        self.state, total = self.play(self.state, keys)
        jax.block_until_ready(total)
        count = steps * self.n
        return count / (time.perf_counter() - began), count / (time.process_time() - began_cpu)


def run_box2d(steps: int, seed: int) -> tuple[float, float]:
    from procurl.envs.bipedal.stump_tracks import StumpTracks

    env, rng = StumpTracks(), np.random.default_rng(seed)
    env.reset(seed=seed)
    actions = rng.uniform(-1, 1, (steps, 4)).astype(np.float32)
    began, began_cpu = time.perf_counter(), time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return steps / (time.perf_counter() - began), steps / (time.process_time() - began_cpu)


if __name__ == "__main__":
    main()
