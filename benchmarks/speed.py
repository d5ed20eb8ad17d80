"""How fast training is, per core and on all cores, and against what, in one run.

    make bench           (or: python benchmarks/speed.py --settings point-mass-1t maze-plane --turns 3)

For every setting, ProCuRL-Target with the paper's student, tasks and targets:

- steps per second of one seed on one core, of eight seeds on one core and on all cores; seconds to compile;
- the share of playing, learning, teaching and evaluating, each compiled and timed alone;
- the ratio to Stable-Baselines3's PPO on the same core with 1 and with 16 environments, as its users run it (and, for
  Point Mass, with 16 environments in one NumPy array, a form that nobody ships);
- the ratio to Stable-Baselines3 with a teacher as the released code has it, which plays one environment: one critic
  call per task at every update, the product of all targets and tasks at every episode;
- the ratio to the arithmetic floor: the floating-point operations of the networks over the rate of a large product;
- what the teacher costs in units of the values of all tasks and targets, which it cannot avoid.

Each number comes from a process of its own, one after the other, several turns; the median of the turns counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict

from measure import iteration_seconds, machine_line, operations_of_critic, operations_per_step, product_rate

SETTINGS = ("point-mass-1t", "point-mass-2g", "maze-plane", "minigrid")
NUMPY = ("point-mass-1t", "point-mass-2g")  # those that baseline.py has in one NumPy array
SEEDS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5, help="timed iterations per turn")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # one measurement, in its own process
    args = parser.parse_args()
    if args.case:
        print(json.dumps(CASES[args.case](args.settings[0], args.iterations)))
        return
    rows = {setting: measured(setting, args) for setting in args.settings}
    report(rows)


def measured(setting: str, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """{case: {name: median over the turns}}"""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for turn in range(args.turns):
        for case in CASES:
            if case == "sb3 numpy" and setting not in NUMPY:
                continue
            command = [sys.executable, __file__, "--case", case, "--settings", setting]
            command += ["--iterations", str(args.iterations)]
            alone = None if case == "all cores" else pin_to_one_core
            done = subprocess.run(command, capture_output=True, text=True, preexec_fn=alone)
            if done.returncode:
                sys.exit(done.stderr)
            row = json.loads(done.stdout.splitlines()[-1])
            for name, value in row.items():
                values[case][name].append(value)
            print(f"{setting}, turn {turn + 1}: {case:10} {row['steps_per_second']:10,.0f} steps/s", flush=True)
    return {case: {name: statistics.median(v) for name, v in row.items()} for case, row in values.items()}


def pin_to_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def one_seed(setting: str, iterations: int) -> dict[str, float]:
    """Training on one core, in parts, and what stands below it."""
    import procurl

    procurl.use_cores(1, device="cpu")
    import jax

    from procurl.runs.seeds import fastest
    from procurl.students import ppo, rollout
    from procurl.students.critic import StudentCritic

    env, space, config, engine = built(setting, 1)
    compiled, seconds = iteration_seconds(engine, iterations)
    carry = jax.tree.map(lambda x: x[0], engine.begin())
    tasks = space.from_pool(jax.random.key(0), jax.numpy.zeros(config.ppo.n_steps, int))
    play = jax.jit(lambda c, tasks, key: rollout.play(env, c.student.params, c.envs, tasks, key, config.ppo))
    learn = jax.jit(lambda student, played, key: ppo.update(student, played, key, config.ppo))
    values = jax.jit(lambda params, tasks: StudentCritic(env, params).value(tasks))
    everything = jax.tree.map(lambda a, b: jax.numpy.concatenate([a, b]), space.pool, space.targets)
    key = jax.random.key(1)
    _, played, _ = play(carry, tasks, key)
    n_values = everything.seed.shape[0]
    rate = product_rate()
    operations = operations_per_step(env, config) * config.ppo.n_steps + operations_of_critic(env, config) * n_values
    begun = engine.begin()
    return {
        "steps_per_second": config.ppo.n_steps / seconds,
        "compile_s": compiled,
        "playing_s": fastest(lambda: play(carry, tasks, key), 5),
        "learning_s": fastest(lambda: learn(carry.student, played, key), 5),
        "teaching_s": engine.teacher_seconds(begun, 20),  # milliseconds: a few would leave it to luck
        "evaluating_s": fastest(lambda: engine.evaluate(begun, 0), 3) / config.evaluate_every,
        "values_s": fastest(lambda: values(carry.student.params, everything), 20),
        "n_values": n_values,
        "over_floor": seconds / (operations / rate),
        "product_gflops": rate / 1e9,
    }


def eight_seeds(setting: str, iterations: int) -> dict[str, float]:
    """On the cores that this process may use."""
    import procurl

    procurl.use_cores(device="cpu")
    _, _, config, engine = built(setting, SEEDS)
    compiled, seconds = iteration_seconds(engine, max(2, iterations // 2))
    return {"steps_per_second": SEEDS * config.ppo.n_steps / seconds, "compile_s": compiled}


def built(setting: str, seeds: int):
    import procurl
    from procurl.runs.engine import Engine

    env, space = procurl.make(setting)
    config = procurl.preset(setting)
    return env, space, config, Engine(env, procurl.make_teacher("procurl-target", space), config, tuple(range(seeds)))


def sb3(n_envs: int, **options):
    def measure(setting: str, iterations: int) -> dict[str, float]:
        import baseline

        return baseline.measured(setting, n_envs, max(1, iterations // 2), **options)

    return measure


CASES = {
    "one seed": one_seed,
    "one core": eight_seeds,
    "all cores": eight_seeds,
    "sb3 1": sb3(1, naive=True),
    "sb3 16": sb3(16, naive=True),
    "sb3 numpy": sb3(16, vectorised=True),
}

BASELINES = {  # what procurl is compared with: the case, and the number in it
    "SB3, 1 environment": ("sb3 1", "steps_per_second"),
    "SB3, 16 environments": ("sb3 16", "steps_per_second"),
    "SB3, 16 in one NumPy array": ("sb3 numpy", "steps_per_second"),
    "SB3, 1, naive teacher": ("sb3 1", "naive_steps_per_second"),
    "SB3, 16, naive teacher": ("sb3 16", "naive_steps_per_second"),
}


def report(rows: dict[str, dict[str, dict[str, float]]]) -> None:
    import procurl

    procurl.use_cores(device="cpu")
    from procurl.bench.report.tables import text_table

    names = list(rows)

    def table(title: str, lines: dict[str, list[str]]) -> None:
        print(f"\n{text_table([title, *names], [[label, *cells] for label, cells in lines.items()])}")

    def line(show) -> list[str]:
        return [show(rows[name]) for name in names]

    def rate(case: str, name: str = "steps_per_second"):
        return lambda r: f"{r[case][name]:,.0f}" if case in r else ""

    def ratio(case: str, name: str):
        return lambda r: f"{r['one seed']['steps_per_second'] / r[case][name]:.0f}" if case in r else ""

    def share(part: str):
        parts = ("playing_s", "learning_s", "teaching_s", "evaluating_s")
        return lambda r: f"{r['one seed'][part] / sum(r['one seed'][p] for p in parts):.1%}"

    table(
        "steps per second",
        {
            "procurl, one seed, one core": line(rate("one seed")),
            f"procurl, {SEEDS} seeds, one core": line(rate("one core")),
            f"procurl, {SEEDS} seeds, all cores": line(rate("all cores")),
            **{label: line(rate(*measured)) for label, measured in BASELINES.items()},
        },
    )
    table(
        "one seed, one core: times faster than",
        {label: line(ratio(*measured)) for label, measured in BASELINES.items()},
    )
    table(
        "where the time goes",
        {
            "playing": line(share("playing_s")),
            "learning": line(share("learning_s")),
            "teaching": line(share("teaching_s")),
            "evaluating": line(share("evaluating_s")),
            "iteration / arithmetic floor": line(lambda r: f"{r['one seed']['over_floor']:.2f}"),
            "teaching / values alone": line(lambda r: f"{r['one seed']['teaching_s'] / r['one seed']['values_s']:.2f}"),
            f"{SEEDS} seeds, all cores / one core": line(
                lambda r: f"{r['one core']['steps_per_second'] / r['all cores']['steps_per_second']:.2f}"
            ),
            "seconds up to the first iteration": line(lambda r: f"{r['one seed']['compile_s']:.1f}"),
        },
    )
    print(
        f"\na large float32 product on one core: {rows[names[0]]['one seed']['product_gflops']:.0f} GFLOP/s; "
        f"{machine_line('torch', 'stable-baselines3')}"
    )


if __name__ == "__main__":
    main()
