"""SAC on Pendulum with any gravity and mass, for the sake of a heavy one; played by three processes."""

import sys

import gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.task_space([0.2, 0.2], [1.2, 1.6], ["gravity / 10", "mass"], target=[1.2, 1.6])


def set_physics(env, context):
    env.unwrapped.g, env.unwrapped.m = 10 * float(context[0]), float(context[1])


def make_env():
    return TaskEnv(gymnasium.make("Pendulum-v1"), space, set_physics, observe=True)


def main(teacher="auto", seed=0, steps=40_000, out="runs/pendulum"):
    env = make_vec_env(make_env, n_envs=3, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "spawn"})
    callback = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=int(steps) // 5, out=out
    )
    SAC("MlpPolicy", env, seed=int(seed), device="cpu").learn(int(steps), callback=callback)
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
