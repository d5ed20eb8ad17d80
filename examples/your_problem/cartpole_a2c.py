"""A2C on CartPole with poles and pushes of any size, for the sake of a long pole and weak pushes."""

import sys

import gymnasium
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.task_space([0.2, 2.0], [3.0, 12.0], ["pole length", "force"], target=[3.0, 2.0])


def set_pole(env, context):
    env.unwrapped.length, env.unwrapped.force_mag = map(float, context)
    env.unwrapped.polemass_length = env.unwrapped.masspole * env.unwrapped.length


def make_env():
    return TaskEnv(gymnasium.make("CartPole-v1"), space, set_pole, observe=True)


def main(teacher="auto", seed=0, steps=60_000, out="runs/cartpole-a2c"):
    env = make_vec_env(make_env, n_envs=8)
    callback = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=int(steps) // 5, out=out
    )
    A2C("MlpPolicy", env, seed=int(seed), device="cpu").learn(int(steps), callback=callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
