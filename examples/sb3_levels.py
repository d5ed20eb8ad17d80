"""Stable-Baselines3's PPO on a list of levels, MiniGrid's DoorKey in three sizes, with pictures as observations.

A level has a name and no distance to the others. `--observe dict` shows the student which level it plays beside the
picture (MultiInputPolicy); without, it sees the picture alone (CnnPolicy), and the values of levels come from returns.
"""

import argparse

import gymnasium
import minigrid  # noqa: F401 (registers its environments)
import numpy as np
import torch
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

N_ENVS, N_STEPS = 8, 256
NEAR = [[1.0, 0.8, 0.5], [0.8, 1.0, 0.7], [0.5, 0.7, 1.0]]  # how much a level helps another
space = procurl.categorical_space(
    ["5x5", "6x6", "8x8"], target="8x8", similarity=NEAR, n_held_out=20, value_range=(0, 1)
)


def set_size(env, context):
    size = int(space.label(context)[0])
    room = env.unwrapped
    room.width, room.height, room.max_steps = size, size, 10 * size**2


def make_env(observe=False):
    return TaskEnv(ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0")), space, set_size, observe=observe)


class SmallPictures(BaseFeaturesExtractor):
    """For 7 x 7 cells: Stable-Baselines3's own network wants 36 x 36 pixels. A context stands beside the features."""

    def __init__(self, observation_space):
        has_context = isinstance(observation_space, gymnasium.spaces.Dict)
        channels, height, width = (observation_space["observation"] if has_context else observation_space).shape
        n_features = 32 * (height - 2) * (width - 2)
        super().__init__(observation_space, n_features + len(space.labels) * has_context)
        layers = torch.nn.Conv2d(channels, 16, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 2), torch.nn.ReLU()
        self.picture = torch.nn.Sequential(*layers, torch.nn.Flatten())

    def forward(self, observation):
        if not isinstance(observation, dict):
            return self.picture(observation / 10)  # its numbers are codes from 0 to 10
        level = torch.nn.functional.one_hot(observation["context"][:, 0].long(), len(space.labels))
        return torch.cat([self.picture(observation["observation"] / 10), level], dim=1)


def success(model, tasks, env) -> float:
    """On each of some tasks once."""
    successes = []
    for context, seed in zip(np.asarray(tasks.context), np.asarray(tasks.seed), strict=True):
        (obs, _), ended = env.reset(options={"context": context, "task_seed": int(seed)}), False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(model.predict(obs)[0]))
            ended = terminated or truncated
        successes.append(reward > 0)
    return float(np.mean(successes))


def train(observe=False, teacher="procurl-target", steps=150_000, seed=0) -> PPO:
    env = make_vec_env(lambda: make_env(observe), n_envs=N_ENVS, seed=seed)
    curriculum = procurl.Curriculum(procurl.make_teacher(teacher, space), seed, every=N_ENVS * N_STEPS, n_envs=N_ENVS)
    value = {"probe": make_env(observe)} if observe else {"value": procurl.ReturnRegressor(space)}
    model = PPO(
        "MultiInputPolicy" if observe else "CnnPolicy", env, learning_rate=1e-3, n_steps=N_STEPS, batch_size=256,
        n_epochs=4, ent_coef=0.01, seed=seed, device="cpu",
        policy_kwargs={"features_extractor_class": SmallPictures, "normalize_images": False},
    )  # fmt: skip
    return model.learn(steps, callback=CurriculumCallback(curriculum, env, **value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observe", choices=["dict"], default=False, help="show the level beside the picture")
    parser.add_argument("--teacher", default="procurl-target")
    parser.add_argument("--steps", type=int, default=150_000)
    args = parser.parse_args()
    model = train(args.observe, args.teacher, args.steps)
    print(f"{args.teacher}: success {success(model, space.held_out, make_env(args.observe)):.2f} on 8x8")


if __name__ == "__main__":
    main()
