"""A loop without any framework: a student that is a table, and success rates as its values."""

import sys

import numpy as np

import procurl

space = procurl.task_space([0.0, 0.5], [90.0, 8.0], ["angle", "gap"], target=[80.0, 1.0])


def cell(context):
    share = (np.asarray(context) - space.low) / (space.high - space.low)
    return tuple(np.moveaxis(np.clip((12 * np.asarray(share)).astype(int), 0, 11), -1, 0))


def main(teacher="auto", seed=0, steps=600_000, out="runs/numpy"):
    rng = np.random.default_rng(int(seed))
    skill = np.zeros((12, 12))
    skill[:5, 7:] = 0.3  # small angles and wide gaps succeed now and then
    with procurl.Curriculum(
        procurl.make_teacher(teacher, space), int(seed), every=100, unit="episodes", out=out
    ) as curriculum:
        while curriculum.updates < int(steps) // 10_000:
            while not curriculum.due:
                task = curriculum.next()
                i, j = cell(task.context)
                success = rng.random() < skill[i, j]
                near = np.s_[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]  # practice helps with neighbours, too
                skill[near] += 0.05 * skill[i, j] * (1 - skill[near])
                curriculum.record(task, ret=float(success), length=100, success=bool(success))
            curriculum.observe(value=lambda tasks: skill[cell(tasks.context)])
            curriculum.evaluated(10_000 * curriculum.updates, skill[cell(space.held_out.context)])


if __name__ == "__main__":
    main(*sys.argv[1:])
