"""SAC on MountainCarContinuous with engines of any power, for the sake of a weak one."""

import sys

import gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.task_space([1.0], [6.0], ["power x 1000"], target=[1.0])


def set_power(env, context):
    env.unwrapped.power = float(context[0]) / 1000


def make_env():
    return TaskEnv(gymnasium.make("MountainCarContinuous-v0", max_episode_steps=300), space, set_power, observe=True)


def main(teacher="auto", seed=0, steps=60_000, out="runs/mountain-car"):
    env = make_vec_env(make_env, n_envs=4)
    callback = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=int(steps) // 5, out=out
    )
    model = SAC("MlpPolicy", env, train_freq=8, gradient_steps=8, seed=int(seed), device="cpu")
    model.learn(int(steps), callback=callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
