"""A small run in a process of its own, which is killed: `test_kill_everywhere.py` starts it.

    python tests/killed.py SETTING TEACHER FOLDER [save|result N]

With `save N` it kills itself at change number N that it makes to its checkpoints, with `result N` to its result. Every
evaluation prints a line. Nothing is imported up here: the worker processes of the Bipedal Walker import this file too.
"""

import sys

ITERATIONS = 30  # of the whole run; after each it is evaluated and saved

SMALL = {  # so small that compiling and starting take most of the time, and yet every teacher has something to do
    "currot": {"n_particles": 20, "n_candidates": 10, "update_after": 2},
    "gradient": {"n_particles": 20, "n_stages": 4, "max_steps_per_stage": 900},
    "procurl-target": {"beta": 20.0},
    "sfl": {"every": 2, "n_tried": 4, "n_episodes": 2, "n_kept": 2},
}
REDRAWN = {"iid": 1, "procurl-unif": 500, "procurl-target": 500}  # steps; on `bipedal`, as in the paper


def train(setting, teacher, folder):
    import dataclasses

    import jax

    import procurl
    from procurl.config import PPO, SAC, Config

    walks = setting == "bipedal"
    env, space = procurl.make(setting, **({"max_steps": 40} if walks else {}))
    cut = lambda tasks, n: jax.tree.map(lambda x: x[:n], tasks)  # noqa: E731
    pool, targets, held_out = cut(space.pool, 60), cut(space.targets, 8), cut(space.held_out, 2)
    space = dataclasses.replace(space, pool=pool, targets=targets, held_out=held_out)
    fields = {**SMALL.get(teacher, {}), **({"redraw_every": REDRAWN[teacher]} if walks and teacher in REDRAWN else {})}
    if walks:
        sac = SAC(
            n_steps=96, n_envs=2, hidden=(8,), batch_size=16, capacity=1000, every=12, start_steps=96,
            first_fit=192, fit_every=480,
        )  # fmt: skip
        config = Config(sac=sac, evaluate_every=1)
    else:
        ppo = PPO(n_steps=128, n_envs=4, batch_size=64, epochs=1, shared=(8,), separate=(8,))
        config = Config(ppo=ppo, evaluate_every=1)
    procurl.train(
        env, procurl.make_teacher(teacher, space, **fields), config, seeds=2, steps=ITERATIONS * config.student.n_steps,
        out=folder, save_share=1.0, callback=lambda progress: print("evaluated", progress.steps, flush=True),
        workers=2 if walks else None,
    )  # fmt: skip


def set_trap(folder, part, left):
    """Die at one of the changes to a run folder: a file cut anywhere, a renaming not done, a folder half removed."""
    import os
    import random
    import shutil
    import signal
    from pathlib import Path

    from procurl.runs.store import disk

    rng = random.Random(left)
    real = {"write": disk.write, "replace": os.replace, "rmtree": shutil.rmtree}

    def sprung(path):
        nonlocal left
        path = Path(path)
        if path.is_relative_to(folder) and ("checkpoints" in path.parts) == (part == "save"):
            left -= 1
        return left == -1

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def write(path, content):
        if sprung(path):
            real["write"](path, content[: rng.randrange(len(content) + 1)])
            die()
        real["write"](path, content)

    def replace(source, target):
        if sprung(target):
            die()
        real["replace"](source, target)

    def rmtree(path, ignore_errors=False):
        if os.path.exists(path) and sprung(path):
            names = sorted(os.listdir(path))
            for name in rng.sample(names, rng.randrange(len(names) + 1)):
                os.unlink(os.path.join(path, name))
            die()
        real["rmtree"](path, ignore_errors)

    disk.write, os.replace, shutil.rmtree = write, replace, rmtree


if __name__ == "__main__":
    import procurl

    procurl.use_cores(2, device="cpu")
    chosen_setting, chosen_teacher, run_folder, *trap = sys.argv[1:]
    if trap:
        set_trap(run_folder, trap[0], int(trap[1]))
    print("begun", flush=True)
    train(chosen_setting, chosen_teacher, run_folder)
