"""Soft Actor-Critic against slow versions and against Stable-Baselines3, and its replay buffer."""

import collections
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from procurl.config import SAC
from procurl.errors import ConfigError
from procurl.students import replay, sac
from procurl.students.replay import Transitions

OBS, ACTIONS = 24, 4
SMALL = SAC(hidden=(8,), batch_size=16)

# One program each: operation by operation, every one would be compiled by itself.
init = jax.jit(sac.init, static_argnums=(1, 2, 3))
squashed = jax.jit(sac.squashed)
add = jax.jit(lambda buffer, steps: replay.add(buffer, replay.as_rows(steps)))
sample = jax.jit(replay.sample, static_argnames=("n", "obs_size"))


def random_batches(k, n, seed, obs_size=OBS, action_size=ACTIONS):
    rng = np.random.default_rng(seed)
    return Transitions(
        obs=rng.normal(size=(k, n, obs_size)).astype(np.float32),
        action=rng.uniform(-1, 1, (k, n, action_size)).astype(np.float32),
        reward=rng.normal(size=(k, n)).astype(np.float32),
        next_obs=rng.normal(size=(k, n, obs_size)).astype(np.float32),
        terminated=(rng.random((k, n)) < 0.2).astype(np.float32),
    )


@partial(jax.jit, static_argnames="config")
def update(student, batch, key, config, given):
    """`given`: numbers of the configuration that are arguments of the program, so that one serves them all."""
    return sac.update(student, batch, key, SimpleNamespace(**{**vars(config), **given}))


def updates(student, batches, key, config, **given):
    """One update for each of k stacked minibatches; losses f32[k]."""
    losses = []
    for i in range(len(batches.reward)):
        student, loss = update(student, Transitions(*(x[i] for x in batches)), key, config, given)
        losses.append(loss)
    return student, jax.tree.map(lambda *x: np.stack(x), *losses)


@partial(jax.jit, static_argnames="capacity")
def filled(capacity, steps):
    """A buffer that holds these transitions."""
    empty = replay.empty(capacity, steps.obs.shape[1], steps.action.shape[1])
    return replay.add(empty, replay.as_rows(steps))


def leaves(tree):
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def assert_same(a, b):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("learn_entropy", [True, False])
def test_learning_returns_the_types_that_it_is_given(learn_entropy):
    """Or it would be compiled twice. Weak types, of Python numbers alone, are other ones to JAX."""
    config = SAC(learn_entropy=learn_entropy)

    def learn(learner, rows, key):
        buffer = replay.add(learner[1], rows)
        return sac.learn(learner[0], buffer, 3, key, config)[0], buffer

    def types(learner):
        return [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(learner)]

    key = jax.random.key(0)
    begun = jax.eval_shape(lambda k: (sac.init(k, OBS, ACTIONS, config), replay.empty(100, OBS, ACTIONS)), key)
    after = jax.eval_shape(learn, begun, np.zeros((10, 2 * OBS + ACTIONS + 2), np.float32), key)
    assert types(begun) == types(after) and not any(is_weak for _, _, is_weak in types(begun))


# --- Stable-Baselines3 ------------------------------------------------------------------------------------------------


def their_sac(config):
    """A model of theirs with this configuration, on an environment that is never played."""
    import gymnasium
    import torch
    from stable_baselines3 import SAC as TheirSAC
    from stable_baselines3.common.logger import Logger

    class Blank(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTIONS,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(OBS, np.float32), {}

        def step(self, action):
            return np.zeros(OBS, np.float32), 0.0, False, False, {}

    torch.set_num_threads(1)
    model = TheirSAC(
        "MlpPolicy", Blank(), learning_rate=config.lr, buffer_size=10, batch_size=config.batch_size, tau=config.tau,
        gamma=config.gamma, ent_coef=f"auto_{config.entropy}" if config.learn_entropy else config.entropy,
        target_entropy="auto" if config.target_entropy is None else config.target_entropy, seed=0, device="cpu",
        policy_kwargs={"net_arch": list(config.hidden)},
    )  # fmt: skip
    model._logger = Logger(None, [])
    model._current_progress_remaining = 1.0
    return model


def their_layers(model, name):
    """The torch layers of one of our networks, last layers with two heads as a pair."""
    if name == "actor":
        actor = model.actor
        hidden = [m for m in actor.latent_pi if hasattr(m, "weight")]
        return [(m,) for m in hidden] + [(actor.mu, actor.log_std)]
    critics = model.critic if name.startswith("critic") else model.critic_target
    network = critics.q_networks[int(name[-1])]
    return [(m,) for m in network if hasattr(m, "weight")]


def our_layers(student):
    return {
        "actor": student.networks.actor,
        "critic 0": student.networks.critics[0],
        "critic 1": student.networks.critics[1],
        "target 0": student.targets[0],
        "target 1": student.targets[1],
    }


def copy_weights(student, model):
    import torch

    with torch.no_grad():
        for name, layers in our_layers(student).items():
            for layer, modules in zip(layers, their_layers(model, name), strict=True):
                weights = np.split(np.asarray(layer["w"]), len(modules), axis=1)
                biases = np.split(np.asarray(layer["b"]), len(modules))
                for module, w, b in zip(modules, weights, biases, strict=True):
                    module.weight.copy_(torch.tensor(w.T.copy()))
                    module.bias.copy_(torch.tensor(b.copy()))


def differences(student, model):
    """Absolute differences of all weights of each network."""
    gaps = {}
    for name, layers in our_layers(student).items():
        gaps[name] = np.concatenate([
            np.abs(np.concatenate([get(m) for m in modules], axis=-1) - np.asarray(layer[part])).ravel()
            for layer, modules in zip(layers, their_layers(model, name), strict=True)
            for part, get in (("w", lambda m: m.weight.detach().numpy().T), ("b", lambda m: m.bias.detach().numpy()))
        ])  # fmt: skip
    return gaps


@partial(jax.jit, static_argnames="n")
def noise_of(key, i, n):
    return jax.random.normal(jax.random.fold_in(key, i), (2, n, ACTIONS))


def train_theirs(model, batches, key, first_update, monkeypatch):
    """As many updates as there are minibatches, with the noise that ours draws."""
    import torch
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    k, n = batches.reward.shape
    column = lambda x: torch.tensor(x)[:, None]  # noqa: E731
    queue = [
        ReplayBufferSamples(
            torch.tensor(b.obs),
            torch.tensor(b.action),
            torch.tensor(b.next_obs),
            column(b.terminated),
            column(b.reward),
        )
        for b in (Transitions(*(x[i] for x in batches)) for i in range(k))
    ]
    noise = collections.deque()
    for i in range(k):  # for the observations first, then for the next ones
        drawn = noise_of(key, first_update + i, n)
        noise.extend(torch.tensor(np.array(x)) for x in drawn)
    samples = iter(queue)
    with monkeypatch.context() as patch:
        patch.setattr(model.replay_buffer, "sample", lambda *args, **kwargs: next(samples))
        patch.setattr(torch.distributions.normal, "_standard_normal", lambda *args, **kwargs: noise.popleft())
        model.train(gradient_steps=k, batch_size=n)
    assert not noise, "Stable-Baselines3 must have used all the noise"


def in_double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64) if x.dtype == np.float32 else x, tree)


@pytest.mark.parametrize("double", [pytest.param(True, marks=pytest.mark.slow), False], ids=["double", "single"])
@pytest.mark.parametrize("learn_entropy", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["learnt", "fixed"])
def test_updates_equal_stable_baselines3(learn_entropy, double, monkeypatch):
    """From the same weights, minibatches and noise: one update, then four in a row.

    Adam's first step is lr times the gradient's sign, and in single precision rounding decides the sign of the smallest
    gradients: a few weights may then differ by a small part of lr. In double precision, nothing may.
    """
    pytest.importorskip("stable_baselines3", reason="the parity test needs the extra [sb3]")
    import torch

    config = SAC(learn_entropy=learn_entropy, entropy=0.3, batch_size=256)
    with jax.enable_x64(double):
        student = init(jax.random.key(0), OBS, ACTIONS, config)
        # targets of their own, so that mistaking one for the other shows
        student = student._replace(targets=jax.tree.map(lambda x: 0.9 * np.asarray(x), student.targets))
        model = their_sac(config)
        if double:
            student = in_double(student)._replace(log_entropy=np.log(config.entropy))
            model.policy.double()
            monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda obs, *a, **k: obs)
            if learn_entropy:
                model.log_ent_coef.data = torch.tensor([config.entropy], dtype=torch.float64).log()
            else:
                model.ent_coef_tensor = torch.tensor(config.entropy, dtype=torch.float64)
        copy_weights(student, model)
        begun = student
        assert np.concatenate(list(differences(student, model).values())).max() == 0

        key = jax.random.key(7)
        for k in (1, 4):
            batches = random_batches(k, config.batch_size, seed=k)
            batches = in_double(batches) if double else batches
            train_theirs(model, batches, key, int(student.updates), monkeypatch)
            student, losses = updates(student, batches, key, config)

            for name, gaps in differences(student, model).items():
                if double:
                    assert gaps.max() < 1e-10, name
                else:
                    assert np.mean(gaps > 1e-5) < 1e-3 and gaps.max() < config.lr, name
            logged = {name.removeprefix("train/"): x for name, x in model.logger.name_to_value.items()}
            close = {"rel": 1e-9 if double else 1e-5}
            assert float(losses.actor.mean()) == pytest.approx(logged["actor_loss"], **close)
            assert float(losses.critic.mean()) == pytest.approx(logged["critic_loss"], **close)
            assert float(losses.entropy.mean()) == pytest.approx(logged["ent_coef"], rel=1e-7)
            if learn_entropy:
                assert float(student.log_entropy) == pytest.approx(model.log_ent_coef.item(), rel=1e-6)
    assert int(student.updates) == 5
    assert float(student.log_entropy) != float(begun.log_entropy) if learn_entropy else True
    for after, before in zip(our_layers(student).values(), our_layers(begun).values(), strict=True):
        moved = max(np.abs(x - y).max() for x, y in zip(leaves(after), leaves(before), strict=True))
        assert moved > 1e-4, "the updates must have changed something"


def test_actions_and_values_equal_stable_baselines3():
    pytest.importorskip("stable_baselines3", reason="the parity test needs the extra [sb3]")
    import torch

    config = SAC(learn_entropy=True, entropy=0.3, batch_size=256)  # as above: it shares its program
    student, model = init(jax.random.key(1), OBS, ACTIONS, config), their_sac(config)
    copy_weights(student, model)
    obs = random_batches(1, 50, seed=2).obs[0]
    theirs, _ = model.predict(obs, deterministic=True)
    np.testing.assert_allclose(sac.act(student.networks, obs), theirs, atol=1e-6)
    q = torch.cat(model.critic(torch.tensor(obs), torch.tensor(theirs)), dim=1).detach().numpy()
    np.testing.assert_allclose(sac.value(student.networks, obs), q.min(axis=1), atol=1e-6)
    assert len(np.unique(q.argmin(axis=1))) == 2, "either critic must be the smaller one somewhere"


# --- its parts --------------------------------------------------------------------------------------------------------


def test_log_probability_is_the_density_of_the_squashed_normal():
    """Against the change of variables by a difference quotient: p(a) = p(u) du/da with u = artanh(a)."""
    rng = np.random.default_rng(0)
    mean, log_std, noise = rng.normal(size=(3, 40, 3)) * 0.4  # not far out, where 1 - a^2 loses its digits
    action, log_prob = map(np.asarray, squashed(*(x.astype(np.float32) for x in (mean, log_std, noise))))
    slow = np.zeros(40)
    for i in range(40):
        for j in range(3):
            std = np.exp(log_std[i, j])
            u = mean[i, j] + std * noise[i, j]
            density = np.exp(-0.5 * ((u - mean[i, j]) / std) ** 2) / (std * np.sqrt(2 * np.pi))
            slope = (np.tanh(u + 1e-5) - np.tanh(u - 1e-5)) / 2e-5
            slow[i] += np.log(density) - np.log(slope + 1e-6)
            assert action[i, j] == pytest.approx(np.tanh(u), abs=1e-6)
    np.testing.assert_allclose(log_prob, slow, rtol=1e-4, atol=1e-4)


def test_far_out_the_log_probability_stays_finite():
    far, zero = np.full((1, 2), 60.0, np.float32), np.zeros((1, 2), np.float32)
    action, log_prob = squashed(far, zero, zero)
    gradient = jax.jit(jax.grad(lambda mean: sac.squashed(mean, zero, zero)[1].sum()))(far)
    assert np.all(np.abs(action) <= 1) and np.isfinite(log_prob).all() and np.isfinite(gradient).all()


def test_the_policys_spread_is_clipped():
    config = SAC(hidden=(4,))
    networks, policy = init(jax.random.key(0), 3, 2, config).networks, jax.jit(sac._policy)
    for bias, log_std in ((100.0, 2.0), (-100.0, -20.0)):
        networks.actor[-1]["b"] = np.float32([0.0, 0.0, bias, bias])
        np.testing.assert_allclose(policy(networks.actor, np.zeros((1, 3), np.float32))[1], log_std)


LEARNT = SAC(hidden=(8,), batch_size=16, learn_entropy=True, entropy=0.1)


def test_targets_follow_the_critics():
    before = init(jax.random.key(0), OBS, ACTIONS, LEARNT)
    before = before._replace(targets=jax.tree.map(lambda x: np.asarray(x) + 1, before.targets))
    for tau in (0.0, 0.3, 1.0):
        given = {"tau": tau, "target_entropy": 0.0}
        after, _ = updates(before, random_batches(1, 16, seed=0), jax.random.key(1), LEARNT, **given)
        for slow, old, fast in zip(*map(leaves, (after.targets, before.targets, after.networks.critics)), strict=True):
            np.testing.assert_allclose(slow, (1 - tau) * old + tau * fast, atol=1e-6)


@pytest.mark.parametrize(("target_entropy", "rises"), [(50.0, True), (-50.0, False)])
def test_entropy_coefficient_moves_towards_the_target(target_entropy, rises):
    """A policy less random than wanted makes randomness dearer, and the other way round."""
    given = {"tau": LEARNT.tau, "target_entropy": target_entropy}
    student = init(jax.random.key(0), OBS, ACTIONS, LEARNT)
    student, losses = updates(student, random_batches(5, 16, seed=0), jax.random.key(1), LEARNT, **given)
    alphas = np.asarray(losses.entropy)
    assert alphas[0] == pytest.approx(0.1)
    assert np.all(np.diff(alphas) > 0) if rises else np.all(np.diff(alphas) < 0)


def test_a_fixed_entropy_coefficient_stays():
    begun = init(jax.random.key(0), OBS, ACTIONS, SMALL)
    student, losses = updates(begun, random_batches(5, 16, seed=0), jax.random.key(1), SMALL)
    np.testing.assert_allclose(losses.entropy, 0.005, rtol=1e-6)
    assert_same(student.log_entropy, begun.log_entropy)


def test_after_the_end_nothing_counts():
    """The next observation of a terminated step is never looked at; that of any other step is."""
    student = init(jax.random.key(0), OBS, ACTIONS, SMALL)
    batches = random_batches(1, 16, seed=0)
    for terminated in (1.0, 0.0):
        ended = batches._replace(terminated=np.full((1, 16), terminated, np.float32))
        elsewhere = ended._replace(next_obs=ended.next_obs + 1)
        losses = [float(updates(student, b, jax.random.key(1), SMALL)[1].critic[0]) for b in (ended, elsewhere)]
        assert (losses[0] == losses[1]) == bool(terminated)


def test_updates_repeat_and_depend_on_the_key():
    student, batches = init(jax.random.key(0), OBS, ACTIONS, SMALL), random_batches(3, 16, seed=0)
    first, second = (updates(student, batches, jax.random.key(1), SMALL)[0] for _ in range(2))
    assert_same(first, second)
    other, _ = updates(student, batches, jax.random.key(2), SMALL)
    assert not np.array_equal(first.networks.actor[0]["w"], other.networks.actor[0]["w"])


def test_updates_in_a_row_equal_single_ones():
    begun, batches, key = init(jax.random.key(0), OBS, ACTIONS, SMALL), random_batches(5, 16, 0), jax.random.key(1)
    row = jax.jit(lambda student, batches: jax.lax.scan(lambda s, b: sac.update(s, b, key, SMALL), student, batches))
    together, _ = row(begun, batches)
    student, _ = updates(begun, batches, key, SMALL)
    for x, y in zip(leaves(together.networks), leaves(student.networks), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_learning_makes_as_many_updates_as_told(n):
    buffer = filled(100, Transitions(*(x[0] for x in random_batches(1, 50, seed=0))))
    begun = init(jax.random.key(0), OBS, ACTIONS, SMALL)
    student, losses = sac.learn(begun, buffer, n, jax.random.key(1), SMALL)
    assert int(student.updates) == n and losses.critic.shape == (n,)


def test_learning_in_pieces_is_learning_at_once():
    """Minibatches and noise follow the number of updates, so one key serves a whole run."""
    buffer = filled(100, Transitions(*(x[0] for x in random_batches(1, 50, seed=0))))
    student = begun = init(jax.random.key(0), OBS, ACTIONS, SMALL)
    together, _ = sac.learn(begun, buffer, 4, jax.random.key(1), SMALL)
    for _ in range(4):
        student, _ = sac.learn(student, buffer, 1, jax.random.key(1), SMALL)
    for x, y in zip(leaves(together.networks), leaves(student.networks), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_random_actions_follow_their_key_and_lie_within_bounds():
    networks = init(jax.random.key(0), 3, 2, SAC(hidden=(4,))).networks
    obs = np.ones((1000, 3), np.float32)
    first, again, other = (sac.act(networks, obs, jax.random.key(k)) for k in (0, 0, 1))
    assert_same(first, again)
    assert not np.array_equal(first, other) and first.shape == (1000, 2)
    assert np.abs(first).max() <= 1 and np.asarray(first).std() > 0.1
    assert len(np.unique(sac.act(networks, obs), axis=0)) == 1


@pytest.mark.parametrize("bad", [{"lr": -1.0}, {"batch_size": 0}, {"entropy": 0.0}, {"tau": 1.5}, {"every": 0}])
def test_bad_numbers_are_refused(bad):
    with pytest.raises(ConfigError, match=f"sac.{next(iter(bad))}"):
        SAC(**bad)


# --- the replay buffer ------------------------------------------------------------------------------------------------


def numbered(first, n):
    """Transitions that carry their number in every field."""
    i = np.arange(first, first + n, dtype=np.float32)
    return Transitions(i[:, None] * [1, 1], -i[:, None], 10 * i, i[:, None] * [2, 2], i % 2 == 0)


def test_buffer_keeps_the_latest_transitions_whole():
    buffer = replay.empty(10, obs_size=2, action_size=1)
    for first in range(0, 24, 4):  # 24 transitions wrap around within an addition
        buffer = add(buffer, numbered(first, 4))
    assert int(buffer.added) == 24
    drawn = jax.tree.map(np.asarray, sample(buffer, jax.random.key(0), 1000, obs_size=2))
    assert drawn.obs.shape == (1000, 2) and drawn.action.shape == (1000, 1) and drawn.reward.shape == (1000,)
    number = drawn.obs[:, 0]
    assert set(number) == set(range(14, 24))
    np.testing.assert_array_equal(drawn.action[:, 0], -number)
    np.testing.assert_array_equal(drawn.reward, 10 * number)
    np.testing.assert_array_equal(drawn.next_obs, 2 * drawn.obs)
    np.testing.assert_array_equal(drawn.terminated, number % 2 == 0)


def test_buffer_draws_only_what_is_filled_and_evenly():
    buffer = filled(1000, numbered(5, 4))
    drawn = np.asarray(sample(buffer, jax.random.key(0), 4000, obs_size=2).obs)
    counts = np.bincount(drawn[:, 0].astype(int), minlength=9)
    assert counts[:5].sum() == 0 and np.all(np.abs(counts[5:] - 1000) < 150)


def test_draws_follow_their_key():
    buffer = filled(1000, numbered(5, 4))
    first, again, other = (sample(buffer, jax.random.key(k), 4000, obs_size=2) for k in (0, 0, 1))
    assert_same(first, again)
    assert not np.array_equal(first.obs, other.obs)


def test_what_does_not_fit_a_buffer_is_refused():
    buffer = replay.empty(10, 2, 1)
    with pytest.raises(ConfigError, match="at most 10 of 7 numbers"):
        replay.add(buffer, np.zeros((1, 9), np.float32))
    with pytest.raises(ConfigError, match="at most 10 of 7 numbers"):
        replay.add(buffer, np.zeros((11, 7), np.float32))
    with pytest.raises(ConfigError, match="positive"):
        replay.empty(0, 2, 1)


# --- learning ---------------------------------------------------------------------------------------------------------


class Walks:
    """Ten steps on a line towards a goal that is seen; the reward is minus the distance. Time runs out: no end."""

    n, steps = 16, 10

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.place, self.goal = self.rng.uniform(-1, 1, (2, self.n))
        return self.obs()

    def obs(self):
        return np.stack([self.place, self.goal], axis=1).astype(np.float32)

    def step(self, action):
        self.place = self.place + 0.5 * action[:, 0]
        return self.obs(), -np.abs(self.place - self.goal)


def mean_return(networks, seed):
    walks, total = Walks(seed), 0.0
    obs = walks.reset()
    for _ in range(walks.steps):
        obs, reward = walks.step(np.asarray(sac.act(networks, obs)))
        total += reward.mean()
    return total


@pytest.mark.parametrize("learn_entropy", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_small_task_is_learnt(learn_entropy):
    """Walking at full speed to the goal costs 0.4 on average; standing still costs 6.7."""
    config = SAC(
        hidden=(32, 32), lr=3e-3, gamma=0.9, tau=0.02, batch_size=128, capacity=5000, every=2, start_steps=320,
        entropy=0.1 if learn_entropy else 0.01, learn_entropy=learn_entropy,
    )  # fmt: skip
    walks, buffer = Walks(0), replay.empty(config.capacity, 2, 1)
    student, key = sac.init(jax.random.key(0), 2, 1, config), jax.random.key(1)
    k_act, k_learn = jax.random.split(key)
    add = jax.jit(replay.add)
    before = mean_return(student.networks, seed=1)
    for episode in range(20):
        obs = walks.reset()
        for t in range(walks.steps):
            step = episode * walks.steps + t
            if step * walks.n < config.start_steps:
                action = walks.rng.uniform(-1, 1, (walks.n, 1))
            else:
                action = np.asarray(sac.act(student.networks, obs, jax.random.fold_in(k_act, step)))
            next_obs, reward = walks.step(action)
            buffer = add(buffer, replay.as_rows(Transitions(obs, action, reward, next_obs, np.zeros(walks.n))))
            obs = next_obs
        student, _ = sac.learn(student, buffer, -(-walks.n * walks.steps // config.every), k_learn, config)
    after = mean_return(student.networks, seed=1)
    assert int(student.updates) == 20 * 80
    assert before < -4 and after > -1
    # The critics must know what a start is worth, since teachers ask them: far goals cost more.
    obs = np.array([[0.0, 0.0], [-1.0, 1.0]], np.float32)
    near, far = np.asarray(sac.value(student.networks, obs))
    assert near > far + 1
