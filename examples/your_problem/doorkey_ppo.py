"""PPO on MiniGrid's DoorKey in three sizes, seen as pictures of 7 x 7 cells, for the sake of the largest."""

import sys

import gymnasium
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from torch.nn import Conv2d, Flatten, GroupNorm, ReLU, Sequential

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.categorical_space(["5x5", "6x6", "8x8"], target="8x8")


def set_size(env, context):
    env.unwrapped.width = env.unwrapped.height = int(space.label(context)[0])


def make_env():
    return TaskEnv(ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0", max_steps=250)), space, set_size)


class SmallPictures(Sequential):  # Stable-Baselines3's own wants 36 x 36 pixels
    def __init__(self, pictures):
        super().__init__(GroupNorm(1, 3), Conv2d(3, 16, 2), ReLU(), Conv2d(16, 32, 2), ReLU(), Flatten())
        self.features_dim = 800


def main(teacher="auto", seed=0, steps=150_000, out="runs/doorkey"):
    env = make_vec_env(make_env, n_envs=8)
    callback = CurriculumCallback(space, env, teacher=teacher, seed=int(seed), probe=make_env(), out=out)
    kind = {"policy_kwargs": {"features_extractor_class": SmallPictures}, "ent_coef": 0.01, "seed": int(seed)}
    PPO("CnnPolicy", env, 1e-3, 256, 256, 4, **kind).learn(int(steps), callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
