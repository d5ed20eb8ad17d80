"""PPO on CartPole with poles of any length and weight, for the sake of long and heavy ones."""

import sys

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.task_space([0.1, 0.05], [6.0, 1.0], ["pole length", "pole mass"], target=[6.0, 1.0])


def set_pole(env, context):
    pole = env.unwrapped
    pole.length, pole.masspole = map(float, context)
    pole.total_mass, pole.polemass_length = pole.masscart + pole.masspole, pole.masspole * pole.length


def make_env():
    return TaskEnv(gymnasium.make("CartPole-v1"), space, set_pole, observe=True)


def main(teacher="auto", seed=0, steps=60_000, out="runs/cartpole"):
    env = make_vec_env(make_env, n_envs=8)
    callback = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=int(steps) // 6, out=out
    )
    PPO("MlpPolicy", env, n_steps=256, seed=int(seed), device="cpu").learn(int(steps), callback=callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
