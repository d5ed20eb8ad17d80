"""SAC's updates by kernels against those of `sac.py`, without a GPU: the kernels are interpreted."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpus import an_h200

from procurl.config import SAC
from procurl.students import replay, sac, sac_kernels, trainee
from procurl.students.sac_kernels.matrix import Layout, packed, unpacked
from procurl.students.trainee import Trainee

N = 3  # updates


def trainee_of(obs: int, action: int, config: SAC, seed: int = 0) -> Trainee:
    """With steps of noise in its buffer, some of them the last of their episode."""
    begun = trainee.begin(jax.random.key(seed), obs, action, config)
    rows = jax.random.normal(jax.random.key(seed + 1), (80, 2 * obs + action + 2))
    rows = rows.at[:, obs : obs + action].set(jnp.tanh(rows[:, obs : obs + action]))
    return begun._replace(buffer=replay.add(begun.buffer, rows.at[:, -1].set(rows[:, -1] > 1.0)))


def both(learn_or_kernels, trainee, config, key):
    return jax.jit(lambda trainee, key: learn_or_kernels(trainee.student, trainee.buffer, N, key, config))(trainee, key)


interpreted = partial(sac_kernels.learn, low=jnp.float32, interpret=True)


@pytest.mark.slow  # interpreted, a case takes ten seconds
@pytest.mark.parametrize(
    ("obs", "action", "hidden", "batch_size", "learn_entropy"),
    [(24, 4, (80, 70), 100, False), (5, 1, (70, 130), 64, True), (3, 2, (64, 64), 33, True)],
)
def test_an_update_by_kernels_equals_one_without(obs, action, hidden, batch_size, learn_entropy):
    config = SAC(
        n_steps=80, n_envs=4, hidden=hidden, batch_size=batch_size, capacity=200, learn_entropy=learn_entropy, lr=1e-4
    )
    trainee, key = trainee_of(obs, action, config), jax.random.key(7)
    expected, found = (both(learn, trainee, config, key) for learn in (sac.learn, interpreted))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=2e-5, rtol=2e-5)
    moved = np.abs(np.asarray(found[0].networks.actor[1]["w"]) - np.asarray(trainee.student.networks.actor[1]["w"]))
    assert moved.max() > 1e-4  # three steps of Adam


@pytest.mark.slow
def test_in_bfloat16_it_is_the_same_but_for_rounding():
    config = SAC(n_steps=80, n_envs=4, hidden=(80, 70), batch_size=100, capacity=200)
    trainee, key = trainee_of(24, 4, config), jax.random.key(7)
    (_, expected), (_, found) = (
        both(learn, trainee, config, key) for learn in (sac.learn, partial(sac_kernels.learn, interpret=True))
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0.03, atol=0.01)


@pytest.mark.slow
def test_seeds_side_by_side_are_each_as_alone():
    config = SAC(n_steps=80, n_envs=4, hidden=(40, 30), batch_size=50, capacity=200)
    trainees = [trainee_of(5, 2, config, seed) for seed in (0, 1)]
    key = jax.random.key(7)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *trainees)
    learn = jax.vmap(lambda trainee: interpreted(trainee.student, trainee.buffer, N, key, config))
    together, _ = jax.jit(learn)(stacked)
    for k, own in enumerate(trainees):
        alone, _ = both(interpreted, own, config, key)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(a)[k], np.asarray(b), atol=1e-5)


def test_a_network_survives_as_a_matrix():
    config = SAC(hidden=(70, 130))
    networks = sac.init(jax.random.key(0), obs_size=5, action_size=3, config=config).networks
    at = Layout(5, 3, *config.hidden)
    for layers in (networks.actor, *networks.critics):
        matrix = jax.jit(packed, static_argnums=1)(layers, at)
        assert np.count_nonzero(matrix) == sum(np.count_nonzero(x) for x in jax.tree.leaves(layers))
        for a, b in zip(
            jax.tree.leaves(jax.jit(unpacked, static_argnums=1)(matrix, at, layers)),
            jax.tree.leaves(layers),
            strict=True,
        ):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_an_update_is_lowered_as_seven_kernels():
    config = SAC(precision="bf16")
    begun = jax.eval_shape(lambda: trainee.begin(jax.random.key(0), 24, 4, config))
    key = jax.eval_shape(lambda: jax.random.key(0))
    with an_h200():
        traced = jax.jit(lambda begun, key: sac_kernels.learn(*begun, 2, key, config)).trace(begun, key)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("triton") >= 7


def test_they_are_used_where_they_can_be(monkeypatch):
    monkeypatch.setattr(sac_kernels, "ON", True)
    assert not sac_kernels.usable(SAC(precision="bf16"))  # no GPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert sac_kernels.usable(SAC(precision="bf16"))
    assert not sac_kernels.usable(SAC())  # full float32 unless something else was asked for
    assert not sac_kernels.usable(SAC(precision="bf16", hidden=(64, 64, 64)))
