"""A tile of rows on its way through a network, and back. Code inside kernels: references, registers and no arrays.

The second layer of 64 rows stays in registers, as tiles. The first layer's are computed one at a time, are at once
multiplied into the second, and are computed again on the way back: that is cheaper than to remember them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from procurl.students import nets
from procurl.students.sac_kernels.matrix import TILE, Layout

Network = Callable[[Any, Any], Array]  # rows and columns of its matrix
Keep = Callable[[Any, Array], None]  # takes tile k of a layer


def network(ref: Any, c: Any) -> Network:
    """One of the networks behind a reference."""
    return lambda rows, columns: ref[c, rows, columns]


def tile(k: Any) -> Any:
    return pl.ds(k * TILE, TILE)


@dataclass(frozen=True)
class Passes:
    at: Layout
    low: Any  # type of what is multiplied; sums are float32

    def product(self, x: Array, y: Array, transposed: Literal["x", "y"] | None = None) -> Array:
        """x y, x^T y or x y^T; in full float32 if that is the type of the factors."""
        dimensions = (((0 if transposed == "x" else 1,), (1 if transposed == "y" else 0,)), ((), ()))
        precision = nets.FULL if self.low == jnp.float32 else None
        return jax.lax.dot_general(x, y, dimensions, precision=precision, preferred_element_type=jnp.float32)

    def hidden(self, net: Network, x: Array, action: Array | None, keep: Keep | None = None) -> list[Array]:
        """Tiles of the second layer, f32[TILE, TILE]; `keep` gets those of the first."""

        def add(k: Any, sums: tuple[Array, ...]) -> tuple[Array, ...]:
            h = jax.nn.relu(self._first(net, x, action, k)).astype(self.low)
            if keep is not None:
                keep(k, h)
            return tuple(s + self.product(h, self._second(net, j, k), transposed="y") for j, s in enumerate(sums))

        nothing = tuple(jnp.zeros((TILE, TILE)) for _ in range(self.at.second_tiles))
        sums = jax.lax.fori_loop(0, self.at.first_tiles, add, nothing)
        return [jax.nn.relu(s + net(self.at.bias_row, tile(j)).astype(jnp.float32)) for j, s in enumerate(sums)]

    def head(self, net: Network, hidden: list[Array], which: int) -> Array:
        """A policy's means (0) or log-stds (1), f32[TILE, done]."""
        bias = net(self.at.bias_row + 1, pl.ds(which * self.at.done, self.at.done)).astype(jnp.float32)
        weights = [self.head_weights(net, which, j) for j in range(len(hidden))]
        products = [self.product(h.astype(self.low), w, transposed="y") for h, w in zip(hidden, weights, strict=True)]
        return sum(products, bias)

    def head_weights(self, net: Network, which: int, j: int) -> Array:
        return net(pl.ds(self.at.head_row + which * self.at.done, self.at.done), tile(j))

    def value(self, net: Network, hidden: list[Array]) -> Array:
        """A critic's value, f32[TILE]."""
        bias = net(self.at.bias_row + 1, 0).astype(jnp.float32)
        return sum((jnp.sum(h * self._value_weights(net, j), axis=1) for j, h in enumerate(hidden)), bias)

    def below_value(self, net: Network, hidden: list[Array], d: Array) -> list[Array]:
        """The loss's slope in the second layer, if it is d, f32[TILE], in a critic's value."""
        slopes = (d[:, None] * self._value_weights(net, j) for j in range(len(hidden)))
        return [jnp.where(h > 0, slope, 0.0).astype(self.low) for h, slope in zip(hidden, slopes, strict=True)]

    def to_first(self, net: Network, x: Array, action: Array | None, d_hidden: list[Array], keep: Keep) -> None:
        """`keep` gets the loss's slope in each tile of the first layer, from that in the second."""

        def through(k: Any, nothing: Array) -> Array:
            keep(k, self._d_first(net, x, action, d_hidden, k))
            return nothing

        jax.lax.fori_loop(0, self.at.first_tiles, through, jnp.int32(0))

    def to_action(self, net: Network, x: Array, action: Array, d_hidden: list[Array]) -> Array:
        """The loss's slope in the action, f32[TILE, done]."""

        def through(k: Any, d_action: Array) -> Array:
            d = self._d_first(net, x, action, d_hidden, k)
            return d_action + self.product(d, net(pl.ds(self.at.seen, self.at.done), tile(k)), transposed="y")

        return jax.lax.fori_loop(0, self.at.first_tiles, through, jnp.zeros((TILE, self.at.done)))

    def _first(self, net: Network, x: Array, action: Array | None, k: Any) -> Array:
        """Tile k of the first layer, before its ReLU."""
        total = self.product(x, net(pl.ds(0, self.at.seen), tile(k)))
        if action is None:
            return total
        return total + self.product(action, net(pl.ds(self.at.seen, self.at.done), tile(k)))

    def _d_first(self, net: Network, x: Array, action: Array | None, d_hidden: list[Array], k: Any) -> Array:
        d = sum(self.product(d, self._second(net, j, k)) for j, d in enumerate(d_hidden))
        return jnp.where(self._first(net, x, action, k) > 0, d, 0.0).astype(self.low)

    def _second(self, net: Network, j: Any, k: Any) -> Array:
        """The second layer's weights from tile k of the first layer to tile j of its own, transposed."""
        return net(pl.ds(self.at.second_row + j * TILE, TILE), tile(k))

    def _value_weights(self, net: Network, j: int) -> Array:
        return net(self.at.head_row, tile(j)).astype(jnp.float32)
