"""PPO on MiniGrid's DoorKey in three sizes, seen as pictures of 7 x 7 cells, for the sake of the largest."""

import sys

import gymnasium
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.categorical_space(["5x5", "6x6", "8x8"], target="8x8")


def set_size(env, context):
    env.unwrapped.width = env.unwrapped.height = int(space.label(context)[0])


def make_env():
    return TaskEnv(ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0")), space, set_size)


class SmallPictures(nn.Sequential):  # Stable-Baselines3's own wants 36 x 36 pixels
    def __init__(self, pictures):
        super().__init__(nn.Conv2d(3, 16, 2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Flatten())
        self.features_dim = 800


def main(teacher="auto", seed=0, steps=80_000, out="runs/doorkey"):
    env = make_vec_env(make_env, n_envs=8)
    watch = CurriculumCallback(
        space, env, teacher=teacher, seed=int(seed), probe=make_env(), evaluate_every=8000, out=out
    )
    pictures = {"features_extractor_class": SmallPictures, "normalize_images": False}
    PPO("CnnPolicy", env, 1e-3, 256, 256, 4, policy_kwargs=pictures, seed=int(seed)).learn(int(steps), watch)


if __name__ == "__main__":
    main(*sys.argv[1:])
