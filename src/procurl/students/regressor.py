"""Values from returns: a small network from context to return, for students whose observation lacks the context.

A critic that does not see the context cannot tell tasks apart at their first observation. `ReturnRegressor` learns from
the episodes instead, and takes the critic's place in front of the teacher:

    value = procurl.ReturnRegressor(space)
    value.record(task.context, ret)         # after every episode
    curriculum.observe(value=value)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from procurl import adam
from procurl.check.numbers import SMALLEST, measured, real, whole
from procurl.errors import ConfigError, NonFiniteError
from procurl.programs import jit
from procurl.students import nets
from procurl.types import Task, TaskSpace

Layers = list[dict[str, Any]]  # of JAX's or NumPy's arrays
HIDDEN, EPOCHS, BATCH, LR = (256, 128, 64), 100, 16, 0.01  # as in the paper's released code
SCALE = ("unknown", "unit", "offset")  # of a model: learnt where the space names no range of values


class ReturnModel(NamedTuple):
    """What a fit has found, as a tree of arrays: `value` works with NumPy's arrays and inside compiled functions."""

    layers: Layers
    centre: Any  # f32[d]  of the contexts
    factor: Any  # f32[d]  scales them
    unknown: Any  # f32[]  the value of every task before the first fit
    unit: Any  # f32[]  scales the returns, which count from `offset`
    offset: Any
    known: Any  # f32[]  1 once there has been a fit, 0 before
    indices: Any = None  # f32[labels]  where contexts are labels, not quantities: each label has an input of its own

    def inputs(self, context: Any) -> Any:
        """The network's inputs for contexts f32[n, d]."""
        if self.indices is not None:
            return (abs(context - self.indices) < 0.5).astype(np.float32)
        return (context - self.centre) * self.factor

    def value(self, tasks: Task) -> Any:
        """f32[n]: a teacher may use it as the student's critic."""
        x = self.inputs(tasks.context)
        for layer in self.layers[:-1]:
            x = x @ layer["w"] + layer["b"]
            x = x * (x > 0)
        found = self.offset + self.unit * (x @ self.layers[-1]["w"] + self.layers[-1]["b"])[..., 0]
        return self.known * found + (1 - self.known) * self.unknown


def unfitted(space: TaskSpace, layers: Layers, scale: bool, xp: Any = np) -> ReturnModel:
    """Before the first fit. `xp`: JAX's NumPy inside a compiled function."""
    low, high = xp.asarray(space.low), xp.asarray(space.high)
    v_min, v_max = space.value_range or (0.0, 1.0)
    wide = xp.where(high > low, high - low, 1.0)
    return ReturnModel(
        layers,
        centre=((low + high) / 2 if scale else xp.zeros(len(low))).astype(np.float32),
        factor=(2 / wide if scale else xp.ones(len(low))).astype(np.float32),
        unknown=xp.float32(v_min),
        unit=xp.float32(v_max - v_min if scale else 1.0),
        offset=xp.float32(v_min if scale else 0.0),
        known=xp.float32(False),
        indices=xp.arange(len(space.labels), dtype=np.float32) if space.labels else None,
    )


def widths(space: TaskSpace, hidden: tuple[int, ...] = HIDDEN) -> tuple[int, ...]:
    """Of the network's layers, from the context to the return."""
    return (len(space.labels) or space.dim, *hidden, 1)


class ReturnRegressor:
    """V(context): predicted return; before the first fit the smallest return everywhere, so that no task stands out.

    A fit starts from new weights, splits the episodes since the last fit 80:20, minimises the squared error by Adam
    and keeps the weights of the epoch that was best on the held-out fifth.

    Args:
        space: of the contexts; its bounds and value range scale inputs and outputs. Without a value range, the returns
            of each fit scale the outputs.
        every: episodes between two fits; None: only when `fit` is called.
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
        every: int | None = 200,
        first: int | None = None,
        hidden: tuple[int, ...] = HIDDEN,
        epochs: int = EPOCHS,
        batch_size: int = BATCH,
        lr: float = LR,
        scale: bool = True,
        seed: int = 0,
    ) -> None:
        if not isinstance(space, TaskSpace):
            raise ConfigError(f"space = {space!r}: expected a task space, of procurl.make or procurl.task_space")
        first = every if first is None else first
        for name, number in {"every": every, "first": first}.items():
            if number is not None:
                whole(name, number, 5)  # a fit takes at least five episodes
        for name, number in {"epochs": epochs, "batch_size": batch_size}.items():
            whole(name, number, 1)
        real("lr", lr, SMALLEST)
        if not isinstance(hidden, tuple | list):
            raise ConfigError(f"hidden = {hidden!r}: expected widths of layers, e.g. (64, 64)")
        hidden = tuple(whole("hidden, a layer's width", width, 1) for width in hidden)
        self.every, self.first, self.epochs, self.batch_size, self.lr, self.seed = (
            every, first, epochs, batch_size, lr, seed,
        )  # fmt: skip
        self._learns_range = space.value_range is None and scale
        self._dim, self._widths = space.dim, widths(space, hidden)
        self.model = unfitted(space, _on_host(nets.init_layers(jax.random.key(seed), self._widths)), scale)
        self.fits = 0
        self._contexts: list[NDArray[np.float32]] = []
        self._returns: list[float] = []

    def record(self, context: ArrayLike, ret: float) -> None:
        """The return of an episode; fits when it is time."""
        d = self._dim
        try:
            given = np.array(context, np.float32)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"context = {context!r}: expected {d} numbers") from error
        if given.shape != (d,) or not np.isfinite(given).all():
            raise ConfigError(f"context = {given.tolist()}: expected {d} finite numbers")
        if not np.isfinite(ret):
            raise NonFiniteError(f"ret = {ret} in the context {given.tolist()}: expected a finite return")
        ret = measured("ret", np.asarray(ret).item())
        self._contexts.append(given)
        self._returns.append(float(np.float32(ret)))
        if self._learns_range and not self.fits:
            self.model = self.model._replace(unknown=np.float32(min(self._returns)))
        due_after = self.every if self.fits else self.first
        if due_after is not None and len(self._returns) >= due_after:
            self.fit()

    def fit(self) -> None:
        """Learn from the episodes since the last fit, and forget them."""
        n = len(self._returns)
        if n < 5:
            raise ConfigError(f"{n} episodes since the last fit: expected at least 5")
        if self._learns_range:
            lowest, width = np.float32(min(self._returns)), np.float32(np.ptp(self._returns))
            unit = width if width > 0 else np.float32(abs(lowest) or 1.0)  # all alike: any unit of that size
            self.model = self.model._replace(offset=lowest, unit=unit)
        rng = np.random.default_rng([self.seed, self.fits])
        order = rng.permutation(n)
        x = self.model.inputs(np.stack(self._contexts))[order]  # f32[n, d]
        y = ((np.array(self._returns) - self.model.offset) / self.model.unit).astype(np.float32)[order]
        n_fit = n - n // 5
        key = jax.random.fold_in(jax.random.key(self.seed), 1 + self.fits)
        fresh = nets.init_layers(key, self._widths)
        data = _padded(x[:n_fit], y[:n_fit], self.batch_size)
        held = _padded(x[n_fit:], y[n_fit:], self.batch_size)
        self._know(_on_host(_fit(fresh, data, held, self.lr, self.epochs, self.batch_size)), self.fits + 1)
        self._contexts, self._returns = [], []

    def __call__(self, tasks: Task) -> NDArray[np.float32]:
        """f32[n]: the values of tasks, in units of return."""
        context: Any = np.asarray(tasks.context, np.float32)
        return self.model.value(tasks._replace(context=context))

    @property
    def episodes(self) -> int:
        """Recorded since the last fit."""
        return len(self._returns)

    def _know(self, layers: Layers, fits: int) -> None:
        self.model, self.fits = self.model._replace(layers=layers, known=np.float32(fits > 0)), fits

    def state_dict(self) -> dict[str, Any]:
        """All that determines what comes next, as a tree of arrays."""
        d = self._dim
        return {
            "layers": self.model.layers,
            "fits": np.array(self.fits, np.int32),
            "contexts": np.array(self._contexts, np.float32).reshape(-1, d),
            "returns": np.array(self._returns, np.float32),
            **({"scale": np.array([getattr(self.model, k) for k in SCALE])} if self._learns_range else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, in a regressor that was made in the same way."""
        self._know(_on_host(state["layers"]), int(state["fits"]))
        if self._learns_range:
            scale = np.asarray(state["scale"], np.float32)
            self.model = self.model._replace(**dict(zip(SCALE, scale, strict=True)))
        self._contexts = list(np.array(state["contexts"], np.float32))
        self._returns = [float(r) for r in state["returns"]]


def _on_host(layers: Layers) -> Layers:
    return jax.tree.map(np.asarray, layers)


def _padded(x: NDArray[np.float32], y: NDArray[np.float32], size: int) -> tuple[Any, Any, Any]:
    """(x, y, weight) as whole minibatches; their number is a power of two, so that few programs are compiled."""
    n = size << (-(-len(y) // size) - 1).bit_length()

    def padded(a: NDArray[np.float32]) -> NDArray[np.float32]:
        wide = np.zeros((n, *a.shape[1:]), np.float32)
        wide[: len(a)] = a
        return wide

    return padded(x), padded(y), padded(np.ones(len(y), np.float32))


def fit(layers: Layers, data: Any, held: Any, lr: float, epochs: int, batch_size: int) -> Layers:
    """The weights after the epoch with the smallest error on `held`.

    `data` and `held` are (x f32[n, d], y f32[n], weight f32[n]), the n of `data` a multiple of `batch_size`. A weight
    is 1, or 0 for padding at the end.
    """
    n_batches = (jnp.sum(data[2], dtype=jnp.int32) + batch_size - 1) // batch_size

    def error(layers: Layers, batch: Any) -> Array:
        x, y, weight = batch
        return jnp.sum(weight * (nets.mlp(layers, x)[..., 0] - y) ** 2) / jnp.maximum(jnp.sum(weight), 1.0)

    def step(i: Array, trained: Any) -> Any:
        layers, state = trained
        batch = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, i * batch_size, batch_size), data)
        stepped = adam.step(layers, jax.grad(error)(layers, batch), state, lr)
        # No batch is empty here. The choice makes XLA round as it did when the loop went through all batches.
        empty = jnp.sum(batch[2]) == 0
        return jax.tree.map(lambda old, new: jnp.where(empty, old, new), trained, stepped)

    def epoch(carry: Any, _: None) -> tuple[Any, None]:
        trained, best, smallest = carry
        trained = jax.lax.fori_loop(0, n_batches, step, trained)  # not the empty ones: Adam would move on its momentum
        now = error(trained[0], held)
        best = jax.tree.map(lambda old, new: jnp.where(now < smallest, new, old), best, trained[0])
        return (trained, best, jnp.minimum(now, smallest)), None

    start = ((layers, adam.init(layers)), layers, jnp.float32(jnp.inf))
    (_, best, _), _ = jax.lax.scan(epoch, start, None, length=epochs)
    return best


_fit = jit(fit, static_argnames=("epochs", "batch_size"))
