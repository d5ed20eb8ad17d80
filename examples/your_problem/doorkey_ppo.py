"""PPO on MiniGrid's DoorKey in three sizes, seen as pictures, for the sake of the largest."""

import sys

import gymnasium
import minigrid  # noqa: F401 (registers its environments)
import torch
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

space = procurl.categorical_space(["5x5", "6x6", "8x8"], target="8x8")


def set_size(env, context):
    env.unwrapped.width = env.unwrapped.height = size = int(space.label(context)[0])
    env.unwrapped.max_steps = 10 * size**2


def make_env():
    return TaskEnv(ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0")), space, set_size)


class SmallPictures(BaseFeaturesExtractor):  # 7 x 7 cells: Stable-Baselines3's own network wants 36 x 36 pixels
    def __init__(self, pictures):
        super().__init__(pictures, 800)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 2), torch.nn.ReLU(), torch.nn.Flatten()
        )

    def forward(self, picture):
        return self.layers(picture / 10)  # its numbers are codes from 0 to 10


def main(teacher="auto", seed=0, steps=80_000, out="runs/doorkey"):
    env = make_vec_env(make_env, n_envs=8)
    curriculum = procurl.Curriculum(procurl.make_teacher(teacher, space), int(seed), every=2048, n_envs=8)
    callback = CurriculumCallback(curriculum, env, probe=make_env(), evaluate_every=int(steps) // 5, out=out)
    pictures = {"features_extractor_class": SmallPictures, "normalize_images": False}
    model = PPO("CnnPolicy", env, 1e-3, 256, 256, 4, ent_coef=0.01, policy_kwargs=pictures, seed=int(seed))
    model.learn(int(steps), callback=callback)


if __name__ == "__main__":
    main(*sys.argv[1:])
