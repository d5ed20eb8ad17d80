"""A network of SAC as one matrix, so that a kernel finds any part of it by its rows.

    rows    seen      the first layer's weights for an observation; its bias is in the next row, as if an observation
                      had one more number, which is always 1
            done      its weights for an action; a policy has none
            second    the second layer's weights, transposed
            head      the last layer's, transposed: a policy's means and log-stds, or in the first row a critic's value
            bias      the second layer's, and in the next row the last layer's
    columns           units of the first layer; in head and bias, of the second

The parts are padded with zeros to whole tiles. They stay zeros, since no gradient reaches them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

TILE = 64  # rows and columns that are multiplied at a time

Layers = list[dict[str, Array]]


@dataclass(frozen=True)
class Layout:
    """Where the parts of a network are: numbers of their first rows, and sizes."""

    obs: int
    action: int
    first: int  # units of the first layer
    second: int

    @cached_property
    def seen(self) -> int:
        """Rows for an observation and the bias: a power of two, as a GPU's matrix units want them."""
        return max(16, 1 << self.obs.bit_length())

    @cached_property
    def done(self) -> int:
        """Rows for an action."""
        return max(16, 1 << (self.action - 1).bit_length())

    @cached_property
    def first_tiles(self) -> int:
        return -(-self.first // TILE)

    @cached_property
    def second_tiles(self) -> int:
        return -(-self.second // TILE)

    @cached_property
    def column_tiles(self) -> int:
        return max(self.first_tiles, self.second_tiles)

    @cached_property
    def second_row(self) -> int:
        return self.seen + self.done

    @cached_property
    def head_row(self) -> int:
        return self.second_row + self.second_tiles * TILE

    @cached_property
    def bias_row(self) -> int:
        return self.head_row + 2 * self.done

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.bias_row + 2, max(self.column_tiles * TILE, 2 * self.done)


class Matrices(NamedTuple):
    """Networks and what Adam knows of their weights, [networks, rows, columns] each."""

    weights: Array
    mean: Array
    square: Array
    slow: Array  # copies that follow slowly
    low_weights: Array  # weights and slow copies as the products take them
    low_slow: Array


def packed(layers: Layers, at: Layout) -> Array:
    first, second, last = layers
    n_done = len(first["w"]) - at.obs
    matrix = jnp.zeros(at.shape)
    matrix = matrix.at[: at.obs, : at.first].set(first["w"][: at.obs]).at[at.obs, : at.first].set(first["b"])
    matrix = matrix.at[at.seen : at.seen + n_done, : at.first].set(first["w"][at.obs :])
    matrix = matrix.at[at.second_row : at.second_row + at.second, : at.first].set(second["w"].T)
    matrix = matrix.at[at.bias_row, : at.second].set(second["b"])
    n, size = _heads(last)
    for k in range(n):
        row, column, mine = at.head_row + k * at.done, k * at.done, slice(k * size, (k + 1) * size)
        matrix = matrix.at[row : row + size, : at.second].set(last["w"].T[mine])
        matrix = matrix.at[at.bias_row + 1, column : column + size].set(last["b"][mine])
    return matrix


def unpacked(matrix: Array, at: Layout, like: Layers) -> Layers:
    """The inverse of `packed`; `like` has the shapes."""
    n_done = len(like[0]["w"]) - at.obs
    n, size = _heads(like[-1])
    rows, columns = ([start + k * at.done for k in range(n)] for start in (at.head_row, 0))
    return [
        {
            "w": jnp.concatenate([matrix[: at.obs, : at.first], matrix[at.seen : at.seen + n_done, : at.first]]),
            "b": matrix[at.obs, : at.first],
        },
        {
            "w": matrix[at.second_row : at.second_row + at.second, : at.first].T,
            "b": matrix[at.bias_row, : at.second],
        },
        {
            "w": jnp.concatenate([matrix[row : row + size, : at.second] for row in rows]).T,
            "b": jnp.concatenate([matrix[at.bias_row + 1, column : column + size] for column in columns]),
        },
    ]


def _heads(last: dict[str, Array]) -> tuple[int, int]:
    """How many, and outputs of each: a policy has one for means and one for log-stds, a critic one for its value."""
    outputs = last["b"].shape[0]
    return (1, 1) if outputs == 1 else (2, outputs // 2)
