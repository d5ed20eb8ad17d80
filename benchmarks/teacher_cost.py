"""What each strategy costs: milliseconds per update, and the share of a training iteration.

    python benchmarks/teacher_cost.py --pools 1000 20000 200000

One update = a queue of 5120 proposals and one `observe` with the student's critic, compiled alone, for one seed on one
core. With `--large`: ProCuRL-Target over a million tasks and ten thousand targets, its time and memory.

The last column is the wall time of a whole iteration relative to IID's at the paper's pool, measured in the same
run with one seed on every core.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import time

from measure import iteration_seconds, machine_line

import procurl
from procurl import presets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="point-mass-2g")
    parser.add_argument("--pools", type=int, nargs="+", default=[1_000, 20_000, 200_000])
    parser.add_argument("--teachers", nargs="+", default=list(presets.TEACHERS))
    parser.add_argument("--large", action="store_true", help="a million tasks and ten thousand targets, and no more")
    args = parser.parse_args()
    if args.large:
        large(args.setting)
        return
    procurl.use_cores()
    import jax

    from procurl.bench.report.tables import text_table
    from procurl.envs import SETTINGS

    env, paper_space = procurl.make(args.setting)
    config = procurl.preset(args.setting)
    _, build_space = SETTINGS[args.setting]
    iterations = {}
    for name in ["iid", *args.teachers]:
        iterations[name] = mean_iteration(env, paper_space, config, name)
        jax.clear_caches()  # dozens of programs at a time are more than a process can map
    rows = []
    for name in args.teachers:
        row = [name]
        for n in args.pools:
            space = dataclasses.replace(build_space(pool_size=n), name=args.setting)
            seconds = update_seconds(env, procurl.make_teacher(name, space), config)
            share = seconds / (seconds + iterations["iid"])  # IID's own update is next to nothing
            row += [f"{1e3 * seconds:.2f}", f"{100 * share:.1f} %"]
        row.append(f"{iterations[name] / iterations['iid']:.2f}")
        rows.append(row)
        print(row, flush=True)
    header = ["strategy"]
    for n in args.pools:
        header += [f"N = {n:,}: ms", "share"]
    print()
    print(text_table([*header, "iteration / IID's"], rows))
    print(
        f"\n{args.setting}; an iteration with IID takes {1e3 * iterations['iid']:.0f} ms for one seed per core; "
        f"{machine_line()}"
    )


def large(setting: str, n_tasks: int = 1_000_000, n_targets: int = 10_000, iterations: int = 20) -> None:
    """Training goes on, exactly, with one seed on one core. Memory is the whole process's at its highest."""
    procurl.use_cores(1, device="cpu")
    from procurl.bench.report.tables import text_table
    from procurl.envs import SETTINGS
    from procurl.runs.engine import Engine

    env, paper_space = procurl.make(setting)
    config = procurl.preset(setting)
    space = dataclasses.replace(SETTINGS[setting][1](pool_size=n_tasks, n_targets=n_targets), name=setting)
    seconds = {}
    for name, tasks in (("the paper's", paper_space), ("large", space)):
        engine = Engine(env, procurl.make_teacher("procurl-target", tasks), config, (0,))
        first, later = iteration_seconds(engine, iterations)
        size = [f"{tasks.n_pool:,}", f"{tasks.targets.seed.shape[0]:,}"]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        seconds[name] = [name, *size, f"{first:.1f} s", f"{1e3 * later:.0f} ms", f"{memory:.2f} GiB"]
    header = ["", "tasks", "targets", "up to the first iteration", "iteration", "memory at its highest"]
    print(text_table(header, list(seconds.values())))
    print(f"\n{machine_line()}")


def mean_iteration(env, space, config, name: str, repeats: int = 60) -> float:
    """The mean, since some strategies do not update in every iteration."""
    import jax

    from procurl.runs.engine import Engine

    engine = Engine(env, procurl.make_teacher(name, space), config, tuple(range(len(jax.local_devices()))))
    carry = engine.begin()
    for t in range(repeats + 2):  # the first compiles
        if t == 2:
            began = time.perf_counter()
        carry, _ = engine.iterate(carry, t)
        jax.block_until_ready(carry)
    return (time.perf_counter() - began) / repeats


def update_seconds(env, teacher, config, repeats: int = 7) -> float:
    """Propose and observe compiled alone, one seed on one core: the median of a few updates in a row."""
    import jax

    from procurl.check.teacher import imagined_episodes
    from procurl.students.critic import Overheard, Player, StudentCritic
    from procurl.students.ppo import init_student

    @jax.jit
    def update(teacher, state, key, params):
        tasks = teacher.propose(state, key, config.ppo.n_steps)
        played = imagined_episodes(key, tasks, config.ppo.n_envs)
        critic = Overheard(StudentCritic(env, params), Player(env, params, teacher.space.fresh_seeds))
        return tasks, teacher.observe(state, key, played, critic)

    params = init_student(jax.random.key(0), env, config.ppo).params
    state = jax.jit(lambda teacher, key: teacher.init(key))(teacher, jax.random.key(1))
    seconds = []
    for t in range(repeats + 2):  # the first compiles
        began = time.perf_counter()
        _, state = jax.block_until_ready(update(teacher, state, jax.random.key(t), params))
        seconds.append(time.perf_counter() - began)
    return sorted(seconds[2:])[repeats // 2]


if __name__ == "__main__":
    main()
