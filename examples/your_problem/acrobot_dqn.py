"""DQN on Acrobot with an upper arm of any length and a lower one of any mass, for the sake of a long, heavy pair."""

import sys

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.task_space([0.3, 0.3], [1.6, 1.8], ["arm length", "arm mass"], target=[1.6, 1.8])


def set_arm(env, context):
    env.unwrapped.LINK_LENGTH_1, env.unwrapped.LINK_MASS_2 = map(float, context)


def make_env():
    return TaskEnv(gymnasium.make("Acrobot-v1"), space, set_arm, observe=True)


def main(teacher="auto", seed=0, steps=60_000, out="runs/acrobot"):
    env = make_vec_env(make_env, n_envs=4)
    callback = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=int(steps) // 5, out=out
    )
    DQN("MlpPolicy", env, exploration_fraction=0.3, seed=int(seed), device="cpu").learn(int(steps), callback=callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
