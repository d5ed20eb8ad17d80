"""PPO in a single PyTorch file, in the style of CleanRL, with a curriculum: the ten lines marked (C).

CartPole with poles of every length, for the sake of the long ones; the pole's length is the context.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import procurl  # (C)
from procurl.integrations.gymnasium import TaskEnv, first_observations  # (C)
from procurl.integrations.vector import CurriculumVectorEnv  # (C)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="procurl-target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=0.2)
    return parser.parse_args()


def set_pole(env, context):  # (C)
    env.unwrapped.length, env.unwrapped.polemass_length = context[0], env.unwrapped.masspole * context[0]  # (C)


class Agent(nn.Module):
    def __init__(self, envs):
        super().__init__()
        n, m = envs.single_observation_space.shape[0], envs.single_action_space.n
        self.critic = nn.Sequential(nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, m))

    def value(self, obs):
        return self.critic(obs)[:, 0]

    def policy(self, obs):
        return Categorical(logits=self.actor(obs))


def main():
    args = parse()
    torch.manual_seed(args.seed)
    space = procurl.task_space([0.1], [6.0], ["pole length"], target=[6.0], value_range=(0, 100))  # (C)

    def make_env():
        return TaskEnv(gymnasium.make("CartPole-v1"), space, set_pole, observe=True)  # (C) the wrapper

    envs = gymnasium.vector.SyncVectorEnv(
        [make_env] * args.num_envs, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
    )
    batch = args.num_envs * args.num_steps
    curriculum = procurl.Curriculum(procurl.make_teacher(args.teacher, space), every=batch, n_envs=args.num_envs)  # (C)
    envs, probe = CurriculumVectorEnv(envs, curriculum), make_env()  # (C)
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)

    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros((*shape, envs.single_observation_space.shape[0]))
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    next_obs = torch.tensor(envs.reset(seed=args.seed)[0])
    returns, recent = np.zeros(args.num_envs), []

    for iteration in range(1, args.total_timesteps // batch + 1):
        for step in range(args.num_steps):
            obs[step] = next_obs
            with torch.no_grad():
                policy, values[step] = agent.policy(next_obs), agent.value(next_obs)
                actions[step] = action = policy.sample()
                logprobs[step] = policy.log_prob(action)
            new_obs, reward, terminated, truncated, infos = envs.step(action.numpy())
            next_obs, done = torch.tensor(new_obs), terminated | truncated
            returns = returns + reward
            recent, returns = [*recent, *returns[done]][-100:], np.where(done, 0.0, returns)
            rewards[step], dones[step] = torch.tensor(reward), torch.tensor(done)
            if truncated.any():  # a time-out is not a failure: bootstrap from the last observation
                last = torch.tensor(np.stack([infos["final_obs"][i] for i in np.flatnonzero(truncated)]))
                with torch.no_grad():
                    rewards[step, torch.tensor(truncated)] += args.gamma * agent.value(last)

        envs.observe(lambda tasks: agent.value(torch.tensor(first_observations(probe, tasks))).detach().numpy())  # (C)

        with torch.no_grad():  # generalised advantage estimation
            advantages, last_advantage = torch.zeros(shape), torch.zeros(args.num_envs)
            next_value = agent.value(next_obs)
            for t in reversed(range(args.num_steps)):
                alive = 1.0 - dones[t]
                delta = rewards[t] + args.gamma * next_value * alive - values[t]
                last_advantage = delta + args.gamma * args.gae_lambda * alive * last_advantage
                advantages[t], next_value = last_advantage, values[t]
            targets = (advantages + values).flatten()

        flat_obs, flat_actions, flat_logprobs = obs.flatten(0, 1), actions.flatten(), logprobs.flatten()
        for _ in range(args.epochs):
            for rows in torch.randperm(batch).split(args.minibatch):
                policy = agent.policy(flat_obs[rows])
                ratio = (policy.log_prob(flat_actions[rows]) - flat_logprobs[rows]).exp()
                gain = advantages.flatten()[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                surrogate = torch.min(ratio * gain, ratio.clamp(1 - args.clip, 1 + args.clip) * gain).mean()
                value_loss = (agent.value(flat_obs[rows]) - targets[rows]).square().mean()
                loss = -surrogate + 0.5 * value_loss - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"{iteration * batch} steps: mean return of the last episodes {np.mean(recent or [0]):.0f}")


if __name__ == "__main__":
    main()
