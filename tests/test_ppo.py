"""The student against slow versions and against Stable-Baselines3."""

import dataclasses
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twins import gae_twin

import procurl
from procurl import adam
from procurl.config import PPO, Config
from procurl.students import nets, ppo, rollout
from procurl.targets import Point
from procurl.types import Continuous, Discrete, Step, Task, TaskSpace

# One program each: operation by operation, every one would be compiled by itself.
init_params = jax.jit(nets.init_params, static_argnums=(1, 2, 3, 4))
init_adam = jax.jit(adam.init)
loss = jax.jit(ppo.loss, static_argnames="config")
gradient_step = jax.jit(ppo.gradient_step, static_argnames="config")


def random_batch(n, obs_size, action_size, seed):
    rng = np.random.default_rng(seed)
    obs, action = rng.normal(size=(n, obs_size)), rng.normal(size=(n, action_size))
    batch = ppo.Batch(obs, action, rng.normal(-3, 0.3, n), rng.normal(size=n), rng.normal(size=n))
    return ppo.Batch(*(x.astype(np.float32) for x in batch[:5]))


def test_gae_equals_its_definition():
    rng = np.random.default_rng(0)
    shape = (40, 3)
    reward, value, next_value = (rng.normal(size=shape) for _ in range(3))
    done = rng.random(shape) < 0.1
    ours = jax.jit(partial(rollout.gae, gamma=0.99, lam=0.95))(
        *(x.astype(np.float32) for x in (reward, value, next_value)), done
    )
    np.testing.assert_allclose(ours, gae_twin(reward, value, next_value, done, 0.99, 0.95), atol=1e-4)


def numpy_forward(params, obs):
    relu = lambda x: np.maximum(x, 0)  # noqa: E731
    trunk = obs
    for layer in params["shared"]:
        trunk = relu(trunk @ layer["w"] + layer["b"])
    heads = []
    for part in ("policy", "value"):
        x = trunk
        for layer in params[part][:-1]:
            x = relu(x @ layer["w"] + layer["b"])
        heads.append(x @ params[part][-1]["w"] + params[part][-1]["b"])
    return heads[0], heads[1][:, 0]


def numpy_loss(params, batch, config):
    mean, value = numpy_forward(params, batch.obs)
    std = np.exp(params["log_std"])
    log_prob = np.sum(-0.5 * ((batch.action - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi), axis=1)
    entropy = np.sum(0.5 + 0.5 * np.log(2 * np.pi) + np.log(std))
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std(ddof=1) + 1e-8)
    ratio = np.exp(log_prob - batch.log_prob)
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage)
    value_loss = np.mean((value - batch.ret) ** 2)
    return -surrogate.mean() + config.value_coef * value_loss - config.entropy * entropy


def as_float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def flat(tree):
    """All numbers of a tree in a row."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_loss_and_one_update_equal_a_hand_version():
    config = PPO(shared=(5,), separate=(4,), n_steps=32, n_envs=4, batch_size=32, entropy=0.03)
    params = init_params(jax.random.key(0), 3, Continuous(2, -1, 1), config.shared, config.separate)
    batch = random_batch(32, 3, 2, seed=1)
    ours, _ = loss(params, batch, config)
    slow, batch64 = as_float64(params), as_float64(batch)
    assert float(ours) == pytest.approx(numpy_loss(slow, batch64, config), rel=1e-5)

    # The gradient by central differences, then clipping and the first Adam step by hand.
    flat64 = flat(slow)
    structure = jax.tree.structure(params)
    shapes = [np.shape(x) for x in jax.tree.leaves(params)]
    cuts = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]

    def loss_at(vector):
        leaves = [x.reshape(s) for x, s in zip(np.split(vector, cuts), shapes, strict=True)]
        return numpy_loss(jax.tree.unflatten(structure, leaves), batch64, config)

    gradient = np.array([(loss_at(flat64 + e) - loss_at(flat64 - e)) / 2e-6 for e in np.eye(len(flat64)) * 1e-6])
    gradient *= min(1.0, config.max_grad_norm / np.linalg.norm(gradient))
    by_hand = flat64 - config.lr * gradient / (np.abs(gradient) + 1e-5)
    updated, _ = gradient_step(ppo.Student(params, init_adam(params)), batch, config)
    np.testing.assert_allclose(flat(updated.params), by_hand, atol=3e-6)


def test_one_epoch_equals_stable_baselines3():
    """From the same weights and batch, in the same order, one epoch gives the same parameters to 1e-5."""
    torch = pytest.importorskip("torch", reason="the parity test needs the extra [sb3]")
    import gymnasium
    from stable_baselines3 import PPO as TheirPPO

    n, n_minibatches = 512, 4
    config = PPO(n_steps=n, n_envs=4, batch_size=n // n_minibatches, epochs=1)

    class Blank(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-10, 10, (7,), np.float32)
        action_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(7, np.float32), {}

        def step(self, action):
            return np.zeros(7, np.float32), 0.0, False, False, {}

    torch.set_num_threads(1)
    model = TheirPPO(
        "MlpPolicy", Blank(), n_steps=n, batch_size=config.batch_size, n_epochs=1, ent_coef=config.entropy,
        learning_rate=config.lr, seed=0, device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip
    # SB3 has no shared layer today, so the comparison uses the two-branch form of the same network.
    params = init_params(jax.random.key(3), 7, Continuous(2, -10, 10), (), (64, 64))
    params["log_std"] = np.float32([0.1, -0.2])

    def load(ours, theirs):
        for layer, module in zip(ours, theirs, strict=True):
            with torch.no_grad():
                module.weight.copy_(torch.tensor(np.array(layer["w"]).T))
                module.bias.copy_(torch.tensor(np.array(layer["b"])))

    extractor = model.policy.mlp_extractor
    branches = {
        "policy": [extractor.policy_net[0], extractor.policy_net[2], model.policy.action_net],
        "value": [extractor.value_net[0], extractor.value_net[2], model.policy.value_net],
    }
    for name, modules in branches.items():
        load(params[name], modules)
    with torch.no_grad():
        model.policy.log_std.copy_(torch.tensor(np.array(params["log_std"])))

    rng = np.random.default_rng(4)
    obs, action = rng.normal(size=(n, 7)).astype(np.float32), rng.normal(size=(n, 2)).astype(np.float32)
    advantage, ret = rng.normal(size=(2, n)).astype(np.float32)
    log_prob = jax.jit(lambda p: nets.log_prob_and_entropy(p, nets.policy(p, obs), action)[0])(params)
    log_prob = (np.asarray(log_prob) + rng.normal(0, 0.2, n)).astype(np.float32)  # so that clipping happens
    batch = ppo.Batch(obs, action, log_prob, advantage, ret)

    buffer = model.rollout_buffer
    buffer.reset()
    buffer.observations[:, 0], buffer.actions[:, 0] = obs, action
    buffer.log_probs[:, 0], buffer.advantages[:, 0], buffer.returns[:, 0] = log_prob, advantage, ret
    buffer.values[:, 0] = ret - advantage
    buffer.full = True
    np.random.seed(5)
    order = np.random.permutation(n)  # what SB3's buffer is about to draw
    np.random.seed(5)
    model._logger = __import__("stable_baselines3").common.logger.Logger(None, [])
    model._current_progress_remaining = 1.0
    model.train()

    student = ppo.Student(params, init_adam(params))
    for rows in order.reshape(n_minibatches, -1):
        student, _ = gradient_step(student, ppo.Batch(*(x[rows] for x in batch[:5])), config)

    moved = 0.0
    for name, modules in branches.items():
        for layer, before, module in zip(student.params[name], params[name], modules, strict=True):
            np.testing.assert_allclose(layer["w"], module.weight.detach().numpy().T, atol=1e-5, rtol=0)
            np.testing.assert_allclose(layer["b"], module.bias.detach().numpy(), atol=1e-5, rtol=0)
            moved = max(moved, np.abs(np.asarray(layer["w"]) - before["w"]).max())
    np.testing.assert_allclose(student.params["log_std"], model.policy.log_std.detach().numpy(), atol=1e-5)
    assert moved > 5e-4, "the update must have changed something"


class Walk(NamedTuple):
    position: jax.Array
    steps: jax.Array
    goal: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Corridor:
    """Walk to a goal on a line, right or left of the start; a few steps suffice, and time runs out after 12."""

    discrete: bool = dataclasses.field(default=False, metadata={"static": True})
    obs_size: ClassVar[int] = 2
    max_steps: ClassVar[int] = 12
    truncates: ClassVar[bool] = True

    @property
    def action(self):
        return Discrete(3) if self.discrete else Continuous(1, -1.0, 1.0)

    def reset(self, task):
        state = Walk(jnp.float32(0.0), jnp.int32(0), task.context[0])
        return state, jnp.stack([state.position, state.goal])

    def step(self, key, state, action):
        move = (action - 1).astype(jnp.float32) if self.discrete else jnp.clip(action[0], -1.0, 1.0)
        position = state.position + 0.5 * move
        state = Walk(position, state.steps + 1, state.goal)
        success = jnp.abs(position - state.goal) < 0.3
        outcome = Step(
            jnp.stack([position, state.goal]),
            success.astype(jnp.float32),
            success,
            (state.steps >= self.max_steps) & ~success,
            success,
        )
        return state, outcome


def corridor_space():
    goals = jnp.array([[-1.5], [1.5], [-1.0], [1.0]])
    rows = jnp.arange(4, dtype=jnp.int32)
    tasks = Task(goals, jnp.zeros(4, jnp.int32), rows)
    return TaskSpace(jnp.array([-2.0]), jnp.array([2.0]), tasks, tasks, tasks, names=("goal",), target=Point((1.5,)))


@pytest.mark.parametrize("discrete", [False, True])
def test_the_corridor_is_sound(discrete):
    procurl.check_env(Corridor(discrete), corridor_space(), steps=12)


@pytest.mark.slow  # test_guards.py has a walk
@pytest.mark.parametrize("discrete", [False, True])
def test_solves_a_trivial_task_in_seconds(discrete):
    space = corridor_space()
    config = Config(
        ppo=PPO(n_steps=1024, n_envs=16, batch_size=128, lr=1e-3, shared=(32,), separate=(32,)), evaluation_episodes=25
    )
    result = procurl.train(Corridor(discrete), procurl.IID(space), config, seeds=2, steps=40_000)
    assert result.ret[:, 0].max() < 0.75, "it must not be solved before training"
    assert result.ret[:, -1].min() > 0.95, result.ret


def test_truncation_bootstraps_and_termination_does_not():
    """Two environments whose only difference is how they end: the critic's value counts after a cut only."""
    config = PPO(n_steps=24, n_envs=2, batch_size=24, shared=(8,), separate=(8,))
    far = Task(np.full((24, 1), 9.0, np.float32), np.zeros(24, np.int32), np.zeros(24, np.int32))
    params = init_params(jax.random.key(0), 2, Continuous(1, -1, 1), config.shared, config.separate)

    class Terminating(Corridor):
        truncates = False

        def step(self, key, state, action):
            state, out = super().step(key, state, action)
            return state, out._replace(terminated=out.terminated | out.truncated, truncated=jnp.bool_(False))

    jax.tree_util.register_dataclass(Terminating, [], ["discrete"])
    advantages = {}
    for env in (Corridor(), Terminating()):

        @jax.jit
        def play(params, tasks, key, env=env):
            envs = rollout.begin(env, jax.tree.map(lambda x: x[:2], tasks))
            return rollout.play(env, params, envs, tasks, key, config)

        _, played, episodes = jax.tree.map(np.asarray, play(params, far, jax.random.key(1)))
        advantages[type(env)], last_obs = played.advantage, played.obs[-1]
    gap = advantages[Corridor] - advantages[Terminating]
    assert np.abs(gap[-1]).max() > 1e-3
    weights = (config.gamma * config.gae_lambda) ** np.arange(12)[::-1]
    np.testing.assert_allclose(gap, gap[-1] * weights[:, None], rtol=1e-4, atol=1e-6)
    # the bonus is gamma V(final observation), and the final observation is the last one plus the last move
    assert last_obs.shape == (2, 2)
    assert bool(episodes.finished[:2].all()) and int(episodes.length[0]) == 12
