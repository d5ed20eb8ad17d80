"""Pictures as observations, with Stable-Baselines3: `examples/sb3_levels.py` and what it relies on."""

from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import is_vecenv_wrapped
from stable_baselines3.common.vec_env.vec_transpose import VecTransposeImage

from procurl.integrations.sb3_values import CriticValue

torch.set_num_threads(1)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    import sb3_levels

    monkeypatch.setattr(sb3_levels, "N_STEPS", 32)  # one batch
    return sb3_levels


def first(tasks, n):
    return jax.tree.map(lambda x: np.array(x[:n]), tasks)


@pytest.mark.parametrize("observe", [False, "dict"])
def test_a_picture_stays_a_picture(example, observe):
    model = example.train(observe, teacher="procurl-target", steps=512)
    assert model.num_timesteps == 512
    kinds = {False: "ActorCriticCnnPolicy", "dict": "MultiInputActorCriticPolicy"}
    assert type(model.policy).__name__ == kinds[observe]
    assert is_vecenv_wrapped(model.env, VecTransposeImage), "taken for a picture: the channels come first"
    seen = model.observation_space["observation"] if observe else model.observation_space
    assert seen.shape == (3, 7, 7) and seen.dtype == np.uint8


def test_the_critic_is_asked_about_the_picture_and_the_context_of_a_task(example):
    model = example.train("dict", teacher="iid", steps=256)
    tasks = first(example.space.pool, 6)
    values = CriticValue(model, example.make_env("dict"))(tasks)
    for context, seed, value in zip(tasks.context, tasks.seed, values, strict=True):
        obs, _ = example.make_env("dict").reset(options={"context": context, "task_seed": int(seed)})
        picture = torch.as_tensor(obs["observation"].transpose(2, 0, 1)[None]).float()
        seen = {"observation": picture, "context": torch.as_tensor(context[None])}
        with torch.no_grad():
            features = model.policy.features_extractor(seen)
            expected = model.policy.value_net(model.policy.mlp_extractor(features)[1])
        assert abs(float(expected) - value) < 1e-5
    assert len(set(values.tolist())) > 3


def test_the_network_for_large_pictures_refuses_small_ones_as_the_page_says(example):
    page = (Path(__file__).parent.parent / "docs/own/levels.md").read_text()
    message = "Kernel size can't be greater than actual input size"
    with pytest.raises(RuntimeError, match=message):
        PPO("CnnPolicy", make_vec_env(example.make_env, n_envs=1), device="cpu")
    assert message in page


def test_levels_are_as_large_as_their_names(example):
    env = example.make_env()
    for context, seed, _ in zip(*first(example.space.pool, 6)[:3], strict=True):
        env.reset(options={"context": context, "task_seed": int(seed)})
        size = int(example.space.label(context)[0])
        assert (env.unwrapped.grid.width, env.unwrapped.grid.height) == (size, size)
        assert env.unwrapped.max_steps == 10 * size**2


@pytest.mark.slow
@pytest.mark.parametrize("observe", [False, "dict"])
def test_pictures_are_learnt_from(example, monkeypatch, observe):
    monkeypatch.setattr(example, "N_STEPS", 256)
    model = example.train(observe)
    assert example.success(model, example.space.held_out, example.make_env(observe)) >= 0.5
