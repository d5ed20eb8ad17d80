"""Values from returns: a small network from context to return, for students whose observation lacks the context.

A critic that does not see the context cannot tell tasks apart at their first observation. `ReturnRegressor` learns from
the episodes instead, and takes the critic's place in front of the teacher:

    value = procurl.ReturnRegressor(space)
    value.record(task.context, ret)         # after every episode
    curriculum.observe(value=value)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from procurl.errors import ConfigError
from procurl.students import adam, nets
from procurl.types import Task, TaskSpace

Layers = list[dict[str, Array]]


class ReturnRegressor:
    """V(context): predicted return; before the first fit the smallest return everywhere, so that no task stands out.

    A fit starts from new weights, splits the episodes since the last fit 80 to 20, minimises the squared error by Adam
    and keeps the weights of the epoch that was best on the fifth it did not see.

    Args:
        space: of the contexts; its bounds and value range scale inputs and outputs.
        every: episodes between two fits.
        first: episodes before the first fit; `every` if not given.
        hidden: widths of the layers.
        epochs: passes over the data in a fit.
        batch_size: episodes in a minibatch.
        lr: Adam's step size.
        scale: False feeds contexts and returns as they are, as the paper's released code does on the Bipedal Walker.
        seed: of weights and splits.
    """

    def __init__(
        self,
        space: TaskSpace,
        *,
        every: int = 200,
        first: int | None = None,
        hidden: tuple[int, ...] = (256, 128, 64),
        epochs: int = 100,
        batch_size: int = 16,
        lr: float = 0.01,
        scale: bool = True,
        seed: int = 0,
    ) -> None:
        first = every if first is None else first
        if min(every, first, epochs, batch_size, *hidden) < 1 or first < 5 or every < 5 or not lr > 0:
            raise ConfigError(
                f"every = {every}, first = {first}, hidden = {hidden}, epochs = {epochs}, batch_size = {batch_size}, "
                f"lr = {lr}: expected positive numbers, and at least 5 episodes for a fit"
            )
        self.every, self.first, self.epochs, self.batch_size, self.lr, self.seed = (
            every, first, epochs, batch_size, lr, seed,
        )  # fmt: skip
        low, high = np.asarray(space.low), np.asarray(space.high)
        v_min, v_max = space.value_range
        self._unknown = v_min
        wide = np.where(high > low, high - low, 1.0)
        self._shift: Any = (low + high) / 2 if scale else 0.0
        self._factor: Any = 2 / wide if scale else 1.0
        self._offset, self._unit = (v_min, v_max - v_min) if scale else (0.0, 1.0)
        self._widths = (len(low), *hidden, 1)
        self._layers: Layers = nets.init_layers(jax.random.key(seed), self._widths)
        self.fits = 0
        self._contexts: list[NDArray[np.float32]] = []
        self._returns: list[float] = []

    def record(self, context: ArrayLike, ret: float) -> None:
        """The return of an episode; fits when it is time."""
        if not np.isfinite(ret):
            raise ConfigError(f"ret = {ret}: expected a finite return")
        self._contexts.append(np.array(context, np.float32))
        self._returns.append(float(np.float32(ret)))
        if len(self._returns) >= (self.every if self.fits else self.first):
            self.fit()

    def fit(self) -> None:
        """Learn from the episodes since the last fit, and forget them."""
        n = len(self._returns)
        if n < 5:
            raise ConfigError(f"{n} episodes since the last fit: expected at least 5")
        rng = np.random.default_rng([self.seed, self.fits])
        order = rng.permutation(n)
        x = ((np.stack(self._contexts) - self._shift) * self._factor).astype(np.float32)[order]  # f32[n, d]
        y = ((np.array(self._returns) - self._offset) / self._unit).astype(np.float32)[order]
        n_fit = n - n // 5
        key = jax.random.fold_in(jax.random.key(self.seed), 1 + self.fits)
        fresh = nets.init_layers(key, self._widths)
        batches = _batches(x[:n_fit], y[:n_fit], self.batch_size)
        held = _batches(x[n_fit:], y[n_fit:], self.batch_size)
        self._layers = _fit(fresh, batches, held, self.lr, self.epochs)
        self.fits += 1
        self._contexts, self._returns = [], []

    def __call__(self, tasks: Task) -> NDArray[np.float32]:
        """f32[n]: the values of tasks, in units of return."""
        contexts = np.asarray(tasks.context, np.float32)
        if self.fits == 0:
            return np.full(len(contexts), self._unknown, np.float32)
        # NumPy: a few small products
        x = (contexts - self._shift) * self._factor
        for layer in self._host_layers()[:-1]:
            x = np.maximum(x @ layer["w"] + layer["b"], 0.0)
        last = self._host_layers()[-1]
        return (self._offset + self._unit * (x @ last["w"] + last["b"])[:, 0]).astype(np.float32)

    def _host_layers(self) -> list[dict[str, NDArray[np.float32]]]:
        return [{k: np.asarray(v) for k, v in layer.items()} for layer in self._layers]

    def state_dict(self) -> dict[str, Any]:
        """All that determines what comes next, as a tree of arrays."""
        d = self._widths[0]
        return {
            "layers": self._host_layers(),
            "fits": np.array(self.fits, np.int32),
            "contexts": np.array(self._contexts, np.float32).reshape(-1, d),
            "returns": np.array(self._returns, np.float32),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, in a regressor that was made in the same way."""
        self._layers = [{k: jnp.asarray(v) for k, v in layer.items()} for layer in state["layers"]]
        self.fits = int(state["fits"])
        self._contexts = list(np.array(state["contexts"], np.float32))
        self._returns = [float(r) for r in state["returns"]]


def _batches(x: NDArray[np.float32], y: NDArray[np.float32], size: int) -> tuple[Array, Array, Array]:
    """(x, y, weight) in minibatches; the number of them is a power of two, so that few programs are compiled."""
    n_batches = 1 << (-(-len(y) // size) - 1).bit_length()
    n = n_batches * size
    weight = np.zeros(n, np.float32)
    weight[: len(y)] = 1.0
    wide_x, wide_y = np.zeros((n, x.shape[1]), np.float32), np.zeros(n, np.float32)
    wide_x[: len(y)], wide_y[: len(y)] = x, y
    shaped = (wide_x.reshape(n_batches, size, -1), wide_y.reshape(n_batches, size), weight.reshape(n_batches, size))
    return tuple(jnp.asarray(a) for a in shaped)  # type: ignore[return-value]


@partial(jax.jit, static_argnames="epochs")
def _fit(layers: Layers, data: Any, held: Any, lr: float, epochs: int) -> Layers:
    """The weights after the epoch with the smallest error on `held`."""

    def error(layers: Layers, batch: Any) -> Array:
        x, y, weight = batch
        return jnp.sum(weight * (nets.mlp(layers, x)[..., 0] - y) ** 2) / jnp.maximum(jnp.sum(weight), 1.0)

    def step(carry: Any, batch: Any) -> tuple[Any, None]:
        layers, state = carry
        stepped = adam.step(layers, jax.grad(error)(layers, batch), state, lr)
        empty = jnp.sum(batch[2]) == 0  # padding: Adam would still move on its momentum
        return jax.tree.map(lambda old, new: jnp.where(empty, old, new), carry, stepped), None

    def epoch(carry: Any, _: None) -> tuple[Any, None]:
        trained, best, smallest = carry
        trained, _ = jax.lax.scan(step, trained, data)
        seen = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), held)
        now = error(trained[0], seen)
        best = jax.tree.map(lambda old, new: jnp.where(now < smallest, new, old), best, trained[0])
        return (trained, best, jnp.minimum(now, smallest)), None

    start = ((layers, adam.init(layers)), layers, jnp.float32(jnp.inf))
    (_, best, _), _ = jax.lax.scan(epoch, start, None, length=epochs)
    return best
