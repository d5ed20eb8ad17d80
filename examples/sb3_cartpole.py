"""Stable-Baselines3's PPO on CartPole with poles of every length, for the sake of the long ones.

The pole's length is the context. `--teacher iid` and `--teacher target` show what the curriculum is worth.
"""

import argparse

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import procurl
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback

N_ENVS, N_STEPS = 8, 256
LONG = 6.0  # half the pole, in metres; CartPole's own is 0.5


def set_pole(env, context):
    env.unwrapped.length, env.unwrapped.polemass_length = context[0], env.unwrapped.masspole * context[0]


space = procurl.task_space(
    [0.1], [LONG], ["pole length"], target=lambda rng, n: rng.uniform(0.8 * LONG, LONG, (n, 1))
)  # fmt: skip


def make_env():
    return TaskEnv(gymnasium.make("CartPole-v1"), space, set_pole, observe=True)


def mean_return(model, tasks, env) -> float:
    """On each of some tasks once."""
    returns = []
    for context, seed in zip(np.asarray(tasks.context), np.asarray(tasks.seed), strict=True):
        (obs, _), ended, ret = env.reset(options={"context": context, "task_seed": int(seed)}), False, 0.0
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(model.predict(obs, deterministic=True)[0]))
            ended, ret = terminated or truncated, ret + reward
        returns.append(ret)
    return float(np.mean(returns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="procurl-target")
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    env = make_vec_env(make_env, n_envs=N_ENVS)
    curriculum = procurl.Curriculum(procurl.make_teacher(args.teacher, space), every=N_ENVS * N_STEPS, n_envs=N_ENVS)
    model = PPO("MlpPolicy", env, n_steps=N_STEPS, batch_size=256, seed=0, device="cpu")
    model.learn(args.steps, callback=CurriculumCallback(curriculum, env, probe=make_env()))
    print(f"{args.teacher}: {mean_return(model, space.held_out, make_env()):.0f} of 500 steps with long poles")


if __name__ == "__main__":
    main()
