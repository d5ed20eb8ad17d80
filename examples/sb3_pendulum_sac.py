"""Stable-Baselines3's SAC on Pendulum with weights of every mass, for the sake of the heavy ones.

The mass at the end of the pendulum is the context. A light one is lifted at once; a heavy one has to be swung up. SAC
learns from a replay buffer, so the teacher watches every few thousand steps and values a task by the Q-function.
"""

import argparse

import gymnasium
import numpy as np
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

N_ENVS, EPISODE = 4, 200
HEAVY = 1.5  # Pendulum's own mass is 1


def set_mass(env, context):
    env.unwrapped.m = float(context[0])


space = procurl.task_space([0.2], [HEAVY], ["mass"], target=[HEAVY])


def make_env():
    return TaskEnv(gymnasium.make("Pendulum-v1"), space, set_mass, observe=True)


def mean_return(model, env, episodes: int = 10) -> float:
    """With the heavy weight, from ten first states."""
    returns = []
    for seed in range(episodes):
        (obs, _), ended, ret = env.reset(options={"context": [HEAVY], "task_seed": seed}), False, 0.0
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
            ended, ret = terminated or truncated, ret + float(reward)
        returns.append(ret)
    return float(np.mean(returns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="procurl-target")
    parser.add_argument("--steps", type=int, default=30_000)
    args = parser.parse_args()
    env, teacher = make_vec_env(make_env, n_envs=N_ENVS), procurl.make_teacher(args.teacher, space)
    curriculum = procurl.Curriculum(teacher, every=2 * N_ENVS * EPISODE, n_envs=N_ENVS)  # two episodes each
    model = SAC("MlpPolicy", env, learning_starts=800, gradient_steps=1, seed=0, device="cpu")
    model.learn(args.steps, callback=CurriculumCallback(curriculum, env, probe=make_env()))
    ret = mean_return(model, make_env())
    print(f"{args.teacher}: return {ret:.0f} with the heavy weight, {curriculum.updates} updates")


if __name__ == "__main__":
    main()
