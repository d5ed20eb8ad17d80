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


def main(teacher="auto", seed=0, steps=40_000, out="runs/mountain-car"):
    env = make_vec_env(make_env, n_envs=4)
    callback = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=int(steps) // 5, out=out
    )
    explores = {"use_sde": True, "ent_coef": 0.1, "gamma": 0.9999}  # else it learns to stand still
    small = {"log_std_init": -3.67, "net_arch": [64, 64]}
    model = SAC("MlpPolicy", env, train_freq=8, gradient_steps=8, policy_kwargs=small, seed=int(seed), **explores)
    model.learn(int(steps), callback=callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
