"""RLlib's PPO (new API stack) on CartPole with poles of every length, for the sake of the long ones.

The curriculum lives in a Ray actor. RLlib calls `on_episode_created` before an environment is reset, in whichever
process that is: the moment to ask for a task. `on_episode_end` records what came of it, and `on_train_result` lets the
teacher watch. Values come from returns, so that the actor needs nothing of RLlib's networks.
"""

import argparse

import gymnasium
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.tune.registry import register_env

from procurl.integrations.gymnasium import TaskEnv

LONG = 6.0  # half the pole, in metres; CartPole's own is 0.5
LENGTHS = gymnasium.spaces.Box(np.float32([0.1]), np.float32([LONG]))
ENVS, BATCH = 8, 2048
TEACHER = "curriculum"  # the actor's name


def set_pole(env, context):
    env.unwrapped.length, env.unwrapped.polemass_length = context[0], env.unwrapped.masspole * context[0]


def make_env(config):
    """Bounds in place of a task space keep JAX out of the env runners. Evaluation plays the default: the long pole."""
    return TaskEnv(gymnasium.make("CartPole-v1"), LENGTHS, set_pole, observe=True, default=[LONG])


@ray.remote(num_cpus=0)
class Teacher:
    """A curriculum that many processes share."""

    def __init__(self, name, n_envs):
        import procurl

        space = procurl.task_space([0.1], [LONG], ["pole length"], target=[LONG])
        self.curriculum = procurl.Curriculum(procurl.make_teacher(name, space), every=BATCH, n_envs=n_envs)
        self.value = procurl.ReturnRegressor(space, every=50)

    def next(self):
        return self.curriculum.next()

    def record(self, task, ret, length):
        self.curriculum.record(task, ret=ret, length=length)
        self.value.record(task.context, ret)

    def withdraw(self, task):
        self.curriculum.withdraw(task)

    def observe(self):
        if self.curriculum.due:
            self.curriculum.observe(self.value)
        return {"updates": self.curriculum.updates, "fits": self.value.fits}


class CurriculumCallback(RLlibCallback):
    """One in every env runner, and one beside the algorithm."""

    def __init__(self):
        self.teacher = ray.get_actor(TEACHER)
        self.playing = {}  # environment -> its task

    def on_episode_created(self, *, env_runner, env, env_index, **kwargs):
        if env_runner.config.in_evaluation:
            return
        if env_index in self.playing:  # RLlib resets in the middle of an episode
            ray.get(self.teacher.withdraw.remote(self.playing.pop(env_index)))
        task = ray.get(self.teacher.next.remote())
        env.envs[env_index].get_wrapper_attr("set_next_task")(*task)
        self.playing[env_index] = task

    def on_episode_end(self, *, episode, prev_episode_chunks, env_runner, env_index, **kwargs):
        if env_runner.config.in_evaluation:
            return
        task, info = self.playing.pop(env_index), episode.get_infos(-1)
        assert np.array_equal(info["context"], task.context) and info["task_seed"] == task.seed, (info, task)
        ret = episode.get_return() + sum(chunk.get_return() for chunk in prev_episode_chunks)
        ray.get(self.teacher.record.remote(task, float(ret), int(episode.t)))

    def on_train_result(self, *, result, **kwargs):
        result["curriculum"] = ray.get(self.teacher.observe.remote())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="procurl-target")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--runners", type=int, default=2, help="processes that play; 0: the algorithm's own")
    args = parser.parse_args()
    ray.init(address="local", include_dashboard=False)  # a cluster: ray.init() on one of its machines
    teacher = Teacher.options(name=TEACHER).remote(args.teacher, ENVS * max(1, args.runners))
    register_env("poles", make_env)
    config = (
        PPOConfig()
        .environment("poles")
        .env_runners(num_env_runners=args.runners, num_envs_per_env_runner=ENVS)
        .training(train_batch_size_per_learner=BATCH, minibatch_size=256, num_epochs=10, lr=3e-4)
        .evaluation(evaluation_interval=args.iterations, evaluation_num_env_runners=0, evaluation_duration=10)
        .callbacks(CurriculumCallback)
    )
    algorithm = config.build_algo()
    for iteration in range(1, args.iterations + 1):
        result = algorithm.train()
        watched = result["curriculum"]
        print(f"iteration {iteration}: the teacher has watched {watched['updates']} times, {watched['fits']} fits")
    ret = result["evaluation"]["env_runners"]["episode_return_mean"]  # with the last iteration
    print(f"{args.teacher}: {ret:.0f} of 500 steps with the long pole")
    algorithm.stop()
    ray.kill(teacher)
    ray.shutdown()


if __name__ == "__main__":
    main()
