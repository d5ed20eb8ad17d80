"""The kernels of an update, in their order. Each works on one tile: 64 rows of the minibatch, or a part of the weights.

Arguments are references to whole arrays of one seed: `jax.vmap` adds the seeds to the grid. What a tile of rows needs
between two layers stays in registers; only what the gradients of the weights are made of is written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from procurl import adam
from procurl.config import LOG_STD, SAC
from procurl.students import nets, sac
from procurl.students.sac_kernels.matrix import TILE, Layout, Matrices
from procurl.students.sac_kernels.passes import Passes, network, tile

NOW, NEXT = 0, 1  # observations and the policy's noise come in pairs
CRITIC_ERRORS, POLICY_LOSS, LOG_PROB = (0, 1), 2, 3  # rows of `told`


class Batches(NamedTuple):
    """Minibatches for n updates, padded to R rows."""

    obs: Array  # [n, 2, R, seen]  now and next; the number behind each observation is 1
    action: Array  # [n, R, done]
    noise: Array  # f32[n, 2, R, done]
    reward: Array  # f32[n, R]
    discount: Array  # f32[n, R]  gamma, or 0 where nothing comes after
    rates: Array  # f32[n, 2, 2]  Adam's step size and spread, of the policy and of the critics


class Acted(NamedTuple):
    """What the policy does, now and next."""

    action: Array  # f32[2, R, done]
    log_prob: Array  # f32[2, R]
    log_std: Array  # f32[2, R, done]  before it is clipped
    first: Array  # [2, R, first units]
    second: Array  # [2, R, second units]


class Slopes(NamedTuple):
    """Of the loss, in what the gradients of a network's weights are made of, together with the layers themselves."""

    first: Array  # [networks, R, first units]
    second: Array  # [networks, R, second units]
    d_first: Array  # [networks, R, first units]
    d_second: Array  # [networks, R, second units]
    d_head: Array  # f32[networks, R, 2 done]


@dataclass(frozen=True)
class Kernels:
    """Calls of the kernels, and below them the kernels. `step` is i32[1], the number of the update among the n."""

    config: SAC
    at: Layout
    low: Any  # type of what is multiplied
    interpret: bool = False  # run without a GPU

    @cached_property
    def passes(self) -> Passes:
        return Passes(self.at, self.low)

    @cached_property
    def tiles(self) -> int:
        """Of a minibatch's rows."""
        return -(-self.config.batch_size // TILE)

    @property
    def rows(self) -> int:
        return self.tiles * TILE

    def act(self, step: Array, policy: Array, batches: Batches) -> Acted:
        wide = self._f32(2, self.rows, self.at.done)
        made = [wide, self._f32(2, self.rows), wide, *self._layers(2)]
        return Acted(*self._call(self._act, (2, self.tiles), made)(step, policy, batches.obs, batches.noise))

    def look_ahead(self, step: Array, slow: Array, batches: Batches, acted: Acted) -> Array:
        """What the slow critics say of the policy's next actions, f32[2, R]."""
        call = self._call(self._look_ahead, (2, self.tiles), [self._f32(2, self.rows)])
        [q] = call(step, slow, batches.obs, acted.action)
        return q  # type: ignore[no-any-return]

    def judge(
        self, step: Array, critics: Array, batches: Batches, acted: Acted, next_q: Array, alpha: Array, told: Array
    ) -> tuple[Slopes, Array]:
        """The critics' errors; those of this update are written into `told`, f32[n, 4, R]."""
        transitions = batches.obs, batches.action, batches.reward, batches.discount
        given = (step, critics, *transitions, acted.log_prob, next_q, alpha[None])
        made = [*self._layers(2), *self._layers(2), self._f32(2, self.rows, 2 * self.at.done), _like(told)]
        *slopes, told = self._call(self._judge, (2, self.tiles), made, {len(given): len(made) - 1})(*given, told)
        return Slopes(*slopes), told

    def slope(self, step: Array, critics: Array, batches: Batches, acted: Acted) -> tuple[Array, Array]:
        """What the critics say of the policy's actions, f32[2, R], and how that changes with them, f32[2, R, done]."""
        made = [self._f32(2, self.rows), self._f32(2, self.rows, self.at.done)]
        q, slope = self._call(self._slope, (2, self.tiles), made)(step, critics, batches.obs, acted.action)
        return q, slope

    def improve(
        self, step: Array, policy: Array, batches: Batches, acted: Acted, q: Array, slope: Array, alpha: Array,
        told: Array,
    ) -> tuple[Slopes, Array]:  # fmt: skip
        """Back through the policy. Losses are written into `told`."""
        action, log_prob, log_std, first, second = acted
        given = (step, policy, batches.obs, batches.noise, action, log_prob, log_std, second, q, slope, alpha[None])
        made = [*self._layers(1), self._f32(1, self.rows, 2 * self.at.done), _like(told)]
        *slopes, told = self._call(self._improve, (self.tiles,), made, {len(given): len(made) - 1})(*given, told)
        return Slopes(first, second, *slopes), told

    def stepped(self, step: Array, networks: Matrices, slopes: Slopes, batches: Batches, is_policy: bool) -> Matrices:
        """Gradient, Adam's step, and the slow copy after it."""
        given = (step, batches.obs, batches.action, *slopes, batches.rates)
        grid = (networks.weights.shape[0], self.at.column_tiles, self.at.second_tiles + 2)
        in_place = {len(given) + k: k for k in range(len(networks))}
        call = self._call(partial(self._stepped, is_policy=is_policy), grid, [_like(x) for x in networks], in_place)
        return Matrices(*call(*given, *networks))

    def _call(
        self,
        kernel: Callable[..., None],
        grid: tuple[int, ...],
        made: list[Any],
        in_place: dict[int, int] | None = None,
    ) -> Any:
        """`in_place`: which results take the memory of which arguments."""
        return pl.pallas_call(
            kernel, grid=grid, out_shape=made, input_output_aliases=in_place or {}, interpret=self.interpret,
            compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
            name=getattr(kernel, "func", kernel).__name__.strip("_"),
        )  # fmt: skip

    def _layers(self, n: int) -> list[jax.ShapeDtypeStruct]:
        """Numbers for both layers of n networks."""
        widths = (self.at.first_tiles * TILE, self.at.second_tiles * TILE)
        return [jax.ShapeDtypeStruct((n, self.rows, width), self.low) for width in widths]

    def _f32(self, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    # --- the kernels

    def _act(
        self, step: Any, policy: Any, obs: Any, noise: Any,
        action: Any, log_prob: Any, log_std: Any, first: Any, second: Any,
    ) -> None:  # fmt: skip
        """Program (now or next, tile of rows)."""
        when, t, r, net = pl.program_id(0), step[0], tile(pl.program_id(1)), network(policy, 0)
        hidden = self.passes.hidden(net, obs[t, when, r, :], None, _into(first, when, r))
        _write(second, when, r, hidden)
        raw, z = self.passes.head(net, hidden, 1), noise[t, when, r, :]
        bounded = jnp.clip(raw, *LOG_STD)
        a = jnp.tanh(self.passes.head(net, hidden, 0) + jnp.exp(bounded) * z)
        terms = -0.5 * z * z - bounded - 0.5 * nets.LOG_2PI - jnp.log(1 - a * a + 1e-6)  # see `sac.squashed`
        action[when, r, :] = jnp.where(self._is_action(), a, 0.0)
        log_prob[when, r] = jnp.sum(jnp.where(self._is_action(), terms, 0.0), axis=1)
        log_std[when, r, :] = raw

    def _look_ahead(self, step: Any, slow: Any, obs: Any, action: Any, q: Any) -> None:
        """Program (critic, tile of rows)."""
        c, r = pl.program_id(0), tile(pl.program_id(1))
        net, x, a = network(slow, c), obs[step[0], NEXT, r, :], action[NEXT, r, :].astype(self.low)
        q[c, r] = self.passes.value(net, self.passes.hidden(net, x, a))

    def _judge(
        self, step: Any, critics: Any, obs: Any, action: Any, reward: Any, discount: Any, log_prob: Any, next_q: Any,
        alpha: Any, _: Any, first: Any, second: Any, d_first: Any, d_second: Any, d_head: Any, told: Any,
    ) -> None:  # fmt: skip
        """Program (critic, tile of rows)."""
        c, i, t = pl.program_id(0), pl.program_id(1), step[0]
        r, net = tile(i), network(critics, c)
        x, a = obs[t, NOW, r, :], action[t, r, :]
        hidden = self.passes.hidden(net, x, a, _into(first, c, r))
        _write(second, c, r, hidden)

        next_value = jnp.minimum(next_q[0, r], next_q[1, r]) - alpha[0] * log_prob[NEXT, r]
        error = self.passes.value(net, hidden) - (reward[t, r] + discount[t, r] * next_value)
        error = jnp.where(self._is_row(i), error, 0.0)
        told[t, c, r] = error * error

        d = error / self.config.batch_size
        column = jax.lax.broadcasted_iota(jnp.int32, (TILE, 2 * self.at.done), 1)
        d_head[c, r, :] = jnp.where(column == 0, d[:, None], 0.0)
        d_hidden = self.passes.below_value(net, hidden, d)
        _write(d_second, c, r, d_hidden)
        self.passes.to_first(net, x, a, d_hidden, _into(d_first, c, r))

    def _slope(self, step: Any, critics: Any, obs: Any, action: Any, q: Any, slope: Any) -> None:
        """Program (critic, tile of rows)."""
        c, r = pl.program_id(0), tile(pl.program_id(1))
        net, x, a = network(critics, c), obs[step[0], NOW, r, :], action[NOW, r, :].astype(self.low)
        hidden = self.passes.hidden(net, x, a)
        q[c, r] = self.passes.value(net, hidden)
        d_hidden = self.passes.below_value(net, hidden, jnp.ones(TILE))
        slope[c, r, :] = self.passes.to_action(net, x, a, d_hidden)

    def _improve(
        self, step: Any, policy: Any, obs: Any, noise: Any, action: Any, log_prob: Any, log_std: Any, second: Any,
        q: Any, slope: Any, alpha: Any, _: Any, d_first: Any, d_second: Any, d_head: Any, told: Any,
    ) -> None:  # fmt: skip
        """Program (tile of rows). The loss is mean (alpha log pi(a) - min_i Q_i(a)), a = tanh(mean + std noise)."""
        i, t = pl.program_id(0), step[0]
        r, net = tile(i), network(policy, 0)
        a, raw, z = action[NOW, r, :], log_std[NOW, r, :], noise[t, NOW, r, :]
        q_0, q_1 = q[0, r], q[1, r]
        told[t, POLICY_LOSS, r] = alpha[0] * log_prob[NOW, r] - jnp.minimum(q_0, q_1)
        told[t, LOG_PROB, r] = log_prob[NOW, r]

        share = jnp.where(q_0 < q_1, 1.0, jnp.where(q_0 == q_1, 0.5, 0.0))[:, None]  # that the first critic has
        d_action = alpha[0] * 2 * a / (1 - a * a + 1e-6) - (share * slope[0, r, :] + (1 - share) * slope[1, r, :])
        counts = self._is_action() & self._is_row(i)[:, None]
        d_mean = jnp.where(counts, d_action * (1 - a * a) / self.config.batch_size, 0.0)
        d_log_std = d_mean * jnp.exp(jnp.clip(raw, *LOG_STD)) * z - alpha[0] / self.config.batch_size
        d_log_std = jnp.where(counts & (raw >= LOG_STD[0]) & (raw <= LOG_STD[1]), d_log_std, 0.0)
        heads = (d_mean, d_log_std)
        for k, d in enumerate(heads):
            d_head[0, r, pl.ds(k * self.at.done, self.at.done)] = d

        d_hidden = []
        for j in range(self.at.second_tiles):
            weights = [self.passes.head_weights(net, k, j) for k in range(2)]
            slope_j = sum(self.passes.product(d.astype(self.low), w) for d, w in zip(heads, weights, strict=True))
            d_hidden.append(jnp.where(second[NOW, r, tile(j)] > 0, slope_j, 0.0).astype(self.low))
        _write(d_second, 0, r, d_hidden)
        self.passes.to_first(net, obs[t, NOW, r, :], None, d_hidden, _into(d_first, 0, r))

    def _stepped(
        self, step: Any, obs: Any, action: Any, first: Any, second: Any, d_first: Any, d_second: Any, d_head: Any,
        rates: Any, *networks: Any, is_policy: bool,
    ) -> None:  # fmt: skip
        """Program (network c, tile of columns k, tile j of the second layer's rows); the last two j: the rest."""
        at, held, made = self.at, Matrices(*networks[:6]), Matrices(*networks[6:])
        c, k, j, t = pl.program_id(0), pl.program_id(1), pl.program_id(2), step[0]
        rate, spread = (rates[t, 0 if is_policy else 1, x] for x in (0, 1))

        def change(rows: Any, columns: Any, gradient: Array) -> None:
            """By a step of Adam, as `adam.step`."""
            here = (c, rows, columns)
            mean = adam.B1 * held.mean[here] + (1 - adam.B1) * gradient
            square = adam.B2 * held.square[here] + (1 - adam.B2) * gradient * gradient
            weights = held.weights[here] - rate * mean / (jnp.sqrt(square) * spread + sac.EPS)
            slow = (1 - self.config.tau) * held.slow[here] + self.config.tau * weights
            for ref, x in zip(made, (weights, mean, square, slow, weights, slow), strict=True):
                ref[here] = x.astype(ref.dtype)

        def summed(part: Callable[[Any], Array], *shape: int) -> Array:
            """Over all tiles of the minibatch."""
            return jax.lax.fori_loop(0, self.tiles, lambda i, total: total + part(tile(i)), jnp.zeros(shape))

        gradient_of = partial(self.passes.product, transposed="x")

        @pl.when((j < at.second_tiles) & (k < at.first_tiles))
        def _() -> None:
            gradient = summed(lambda r: gradient_of(d_second[c, r, tile(j)], first[c, r, tile(k)]), TILE, TILE)
            change(pl.ds(at.second_row + j * TILE, TILE), tile(k), gradient)

        @pl.when((j == at.second_tiles) & (k < at.first_tiles))
        def _() -> None:
            gradient = summed(lambda r: gradient_of(obs[t, NOW, r, :], d_first[c, r, tile(k)]), at.seen, TILE)
            change(pl.ds(0, at.seen), tile(k), gradient)
            if not is_policy:
                gradient = summed(lambda r: gradient_of(action[t, r, :], d_first[c, r, tile(k)]), at.done, TILE)
                change(pl.ds(at.seen, at.done), tile(k), gradient)

        @pl.when((j == at.second_tiles + 1) & (k < at.second_tiles))
        def _() -> None:
            heads = lambda r: gradient_of(d_head[c, r, :].astype(self.low), second[c, r, tile(k)])  # noqa: E731
            change(pl.ds(at.head_row, 2 * at.done), tile(k), summed(heads, 2 * at.done, TILE))
            change(at.bias_row, tile(k), summed(lambda r: d_second[c, r, tile(k)].astype(jnp.float32).sum(0), TILE))

        @pl.when((j == at.second_tiles + 1) & (k == at.column_tiles - 1))
        def _() -> None:
            gradient = summed(lambda r: d_head[c, r, :].sum(0), 2 * at.done)
            change(at.bias_row + 1, pl.ds(0, 2 * at.done), gradient)

    def _is_action(self) -> Array:
        """Which numbers of a padded action are there."""
        return jax.lax.broadcasted_iota(jnp.int32, (TILE, self.at.done), 1) < self.at.action

    def _is_row(self, i: Any) -> Array:
        """Which rows of tile i are transitions."""
        return i * TILE + jax.lax.broadcasted_iota(jnp.int32, (TILE,), 0) < self.config.batch_size


def _like(x: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _write(ref: Any, c: Any, r: Any, tiles: list[Array]) -> None:
    for j, x in enumerate(tiles):
        ref[c, r, tile(j)] = x.astype(ref.dtype)


def _into(ref: Any, c: Any, r: Any) -> Callable[[Any, Array], None]:
    def keep(k: Any, x: Array) -> None:
        ref[c, r, tile(k)] = x

    return keep
