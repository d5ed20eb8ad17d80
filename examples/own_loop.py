"""A curriculum in a loop of your own, without any framework: a student that is only a table.

Tasks are gates of some position and width; the student has a skill for each kind of gate, and practice at one kind also
helps with its neighbours. Replace `Student` by your agent: the curriculum needs returns, and a value for a task.
"""

import jax
import numpy as np

import procurl

PERIODS, EPISODES = 30, 200


class Student:
    """Skill on a grid of (position, width). Whoever passes wide gates learns to pass narrower ones."""

    def __init__(self, space):
        self.low, self.high = np.asarray(space.low)[:2], np.asarray(space.high)[:2]
        self.skill = np.zeros((12, 12))
        self.skill[:, 8:] = 0.5

    def cell(self, context):
        scaled = (np.asarray(context)[..., :2] - self.low) / (self.high - self.low)
        return tuple(np.moveaxis(np.clip((12 * scaled).astype(int), 0, 11), -1, 0))

    def play(self, task, rng):
        """One episode: the chance to succeed is the skill, and one learns most from what is half mastered."""
        i, j = self.cell(task.context)
        chance = self.skill[i, j]
        nearby = np.s_[max(i - 1, 0) : i + 2, max(j - 2, 0) : j + 2]
        self.skill[nearby] += 0.3 * chance * (1 - chance) * (1 - self.skill[nearby])
        return float(rng.random() < chance), 50

    def value(self, tasks):
        return self.skill[self.cell(tasks.context)]


def main() -> None:
    space = procurl.make("point-mass-2g")[1]
    targets = jax.tree.map(np.asarray, space.held_out)
    for name in ("procurl-target", "iid", "target"):
        rng, student = np.random.default_rng(0), Student(space)
        curriculum = procurl.Curriculum(procurl.make_teacher(name, space), every=EPISODES, unit="episodes")
        for _ in range(PERIODS):
            while not curriculum.due:
                task = curriculum.next()
                ret, length = student.play(task, rng)
                curriculum.record(task, ret=ret, length=length)
            curriculum.observe(value=student.value)
        print(
            f"{name:15} value of the target tasks after {PERIODS * EPISODES} episodes:", student.value(targets).mean()
        )


if __name__ == "__main__":
    main()
