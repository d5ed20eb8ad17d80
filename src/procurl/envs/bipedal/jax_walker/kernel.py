"""A loop of the solver as one GPU kernel, with a thread for every walker.

XLA makes dozens of kernels of one iteration, and with some thousand walkers it takes far longer to start them than they
run. `in_one_kernel` hands the whole loop to Pallas: every number of a walker lies in a register of its thread.

The physics is written for arrays [..., N], a kernel wants vectors of a power of two. So the function is traced once for
a block of walkers, and its operations are repeated for every row [N] of its arrays (`by_rows`): arithmetic row by row,
while shapes, slices and stacks only rearrange which row is where, and cost nothing.

A loop that goes on until all walkers are done ends for each block by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce, wraps
from importlib.util import find_spec
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Rows = NDArray[Any]  # an array of vectors [N], and of numbers that all walkers share

BLOCK = 32  # walkers of a kernel's block: the threads of a warp
# No GPU has run these kernels yet: `benchmarks/bipedal_jax.py speed --alone --device gpu` turns them on, compares
# them with the plain functions, and times both.
ON = False


def in_one_kernel(function: F) -> F:
    """`function` of arrays [..., N]; on a GPU, as one kernel (if they are on)."""

    def run(*args: Any) -> Any:
        possible = jax.default_backend() == "gpu" and find_spec("jax.experimental.pallas.triton") is not None
        return as_kernel(function, *args) if ON and possible else function(*args)

    return wraps(function)(run)  # type: ignore[return-value]


def as_kernel(function: Callable[..., Any], *args: Any, interpret: bool = False) -> Any:
    """`function(*args)` by one kernel; `interpret` runs it without a GPU."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    given, structure = jax.tree.flatten(args)
    n = given[0].shape[-1]
    blocks = -(-n // BLOCK)

    def padded(x: Array) -> Array:
        """[rows, N], numbers in place of bools; the last walker fills the last block."""
        rows = x.reshape(-1, n)
        rows = rows.astype(jnp.int32) if rows.dtype == bool else rows
        return jnp.pad(rows, ((0, 0), (0, blocks * BLOCK - n)), mode="edge")

    def of_block(*arrays: Array) -> list[Array]:
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, arrays)))

    block = [jax.ShapeDtypeStruct((*x.shape[:-1], BLOCK), x.dtype) for x in given]
    traced = jax.make_jaxpr(of_block)(*block)
    shapes = [jax.ShapeDtypeStruct((*x.shape[:-1], n), x.dtype) for x in traced.out_avals]

    def kernel(*refs: Any) -> None:
        inputs, outputs = refs[: len(given)], refs[len(given) :]
        rows = [_loaded(ref, x) for ref, x in zip(inputs, block, strict=True)]
        for ref, result in zip(outputs, by_rows(traced.jaxpr, traced.consts, rows), strict=True):
            for k, row in enumerate(result.flat):
                ref[k, :] = _vector(row).astype(ref.dtype)

    def spec(x: jax.ShapeDtypeStruct) -> Any:
        return pl.BlockSpec((int(np.prod(x.shape[:-1], dtype=int)), BLOCK), lambda i: (0, i))

    def stored(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        rows = int(np.prod(x.shape[:-1], dtype=int))
        return jax.ShapeDtypeStruct((rows, blocks * BLOCK), jnp.int32 if x.dtype == bool else x.dtype)

    results = pl.pallas_call(
        kernel,
        grid=(blocks,),
        in_specs=[spec(x) for x in given],
        out_specs=[spec(x) for x in shapes],
        out_shape=[stored(x) for x in shapes],
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
        name=function.__name__,
    )(*map(padded, given))
    whole = [y[:, :n].reshape(x.shape).astype(x.dtype) for y, x in zip(results, shapes, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(function, *args)), whole)


def _loaded(ref: Any, x: jax.ShapeDtypeStruct) -> Rows:
    rows = np.empty(_small(x.shape), object)
    for k in range(rows.size):
        row = ref[k, :]
        rows.flat[k] = row != 0 if x.dtype == bool else row
    return rows


def _vector(row: Any) -> Array:
    return jnp.broadcast_to(row, (BLOCK,)) if jnp.ndim(row) == 0 else row


def _small(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the rows of an array: an axis of walkers has one entry, the vector. No other axis is as long as a block."""
    return tuple(1 if size == BLOCK else size for size in shape)


# --- the interpreter


def by_rows(jaxpr: Any, consts: Iterable[Any], args: Iterable[Rows]) -> list[Rows]:
    """What a traced function computes, from rows to rows."""
    values: dict[Any, Rows] = dict(zip(jaxpr.constvars, map(_constant, consts), strict=True))
    values |= dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Rows:
        return _constant(atom.val) if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, [read(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if name in LOOPS:
            results = LOOPS[name](equation, operands)
        elif inner is not None:
            results = by_rows(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
        elif name in REARRANGED:
            results = [REARRANGED[name](equation, *operands)]
        elif name == "unstack":
            results = list(np.moveaxis(operands[0], equation.params["axis"], 0))
        elif name in FOLDED:
            results = [_folded(equation, operands[0])]
        elif name == "optimization_barrier":
            results = operands
        else:
            results = [_by_row(equation, operands)]
        values |= dict(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _constant(x: Any) -> Rows:
    rows = np.empty(np.shape(x), object)
    rows[...] = np.asarray(x)
    return rows


def _by_row(equation: Any, operands: list[Rows]) -> Rows:
    """Arithmetic: the same operation for every row."""
    rows = np.empty(_small(equation.outvars[0].aval.shape), object)
    operands = [np.broadcast_to(operand, rows.shape) for operand in operands]
    types = [variable.aval.dtype for variable in equation.invars]
    for place in np.ndindex(rows.shape):
        mine = [jnp.asarray(operand[place], dtype) for operand, dtype in zip(operands, types, strict=True)]
        if any(x.ndim for x in mine):
            mine = [_vector(x) for x in mine]
        rows[place] = equation.primitive.bind(*mine, **equation.params)
    return rows


def _spread(equation: Any, rows: Rows) -> Rows:
    shape = _small(equation.params["shape"])
    thin = [1] * len(shape)
    for size, dimension in zip(rows.shape, equation.params["broadcast_dimensions"], strict=True):
        thin[dimension] = size
    return np.broadcast_to(rows.reshape(thin), shape)


def _reshaped(equation: Any, rows: Rows) -> Rows:
    return rows.reshape(_small(equation.outvars[0].aval.shape))


def _sliced(equation: Any, rows: Rows) -> Rows:
    p = equation.params
    return rows[tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or [1] * rows.ndim))]


def _joined(equation: Any, *operands: Rows) -> Rows:
    return np.concatenate(operands, axis=equation.params["dimension"])


def _stacked(equation: Any, *operands: Rows) -> Rows:
    return np.stack(operands, axis=equation.params["axis"])


REARRANGED: dict[str, Callable[..., Rows]] = {
    "broadcast_in_dim": _spread, "reshape": _reshaped, "squeeze": _reshaped, "slice": _sliced, "concatenate": _joined,
    "stack": _stacked,
}  # fmt: skip
FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_min": jnp.minimum, "reduce_max": jnp.maximum, "reduce_sum": jnp.add,
    "reduce_and": jnp.logical_and, "reduce_or": jnp.logical_or,
}  # fmt: skip


def _folded(equation: Any, rows: Rows) -> Rows:
    """Over axes of rows, and over all walkers of the block."""
    name, axes = equation.primitive.name, equation.params["axes"]
    kept = [axis for axis in range(rows.ndim) if axis not in axes]
    by_place = np.moveaxis(rows, kept, range(len(kept))).reshape(*(rows.shape[axis] for axis in kept), -1)
    result = np.empty(by_place.shape[:-1], object)
    for place in np.ndindex(result.shape):
        result[place] = reduce(FOLDED[name], by_place[place])
        if any(equation.invars[0].aval.shape[axis] == BLOCK for axis in axes):
            result[place] = _over_walkers(name, result[place])
    return result


def _over_walkers(name: str, row: Any) -> Any:
    vector = _vector(row)
    if vector.dtype == bool:  # Triton folds numbers only
        number = vector.astype(jnp.int32)
        return (jnp.min(number) if name == "reduce_and" else jnp.max(number)) != 0
    over: dict[str, Callable[[Array], Array]] = {"reduce_min": jnp.min, "reduce_max": jnp.max, "reduce_sum": jnp.sum}
    return over[name](vector)


def _flat(values: Iterable[Rows], variables: Iterable[Any]) -> tuple[Any, ...]:
    """What a loop carries: vectors, and numbers where there is no axis of walkers."""
    rows = [
        (jnp.asarray(row, variable.aval.dtype), BLOCK in variable.aval.shape)
        for value, variable in zip(values, variables, strict=True)
        for row in value.flat
    ]
    return tuple(_vector(row) if of_walkers else row for row, of_walkers in rows)


def _shaped(flat: Iterable[Any], variables: Iterable[Any]) -> list[Rows]:
    left, shaped = iter(flat), []
    for variable in variables:
        rows = np.empty(_small(variable.aval.shape), object)
        for k in range(rows.size):
            rows.flat[k] = next(left)
        shaped.append(rows)
    return shaped


def _while(equation: Any, operands: list[Rows]) -> list[Rows]:
    p = equation.params
    for_cond, for_body = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    variables = equation.outvars
    cond, body = p["cond_jaxpr"], p["body_jaxpr"]

    def goes_on(carry: Any) -> Any:
        [rows] = by_rows(cond.jaxpr, cond.consts, [*operands[:for_cond], *_shaped(carry, variables)])
        return rows[()]

    def once(carry: Any) -> Any:
        after = by_rows(body.jaxpr, body.consts, [*operands[for_cond:for_body], *_shaped(carry, variables)])
        return _flat(after, variables)

    return _shaped(jax.lax.while_loop(goes_on, once, _flat(operands[for_body:], variables)), variables)


def _scan(equation: Any, operands: list[Rows]) -> list[Rows]:
    """Of `fori_loop`: nothing but a carry. (Releases of JAX differ in how they say what is what, hence by shapes.)"""
    p, variables = equation.params, equation.outvars
    body = p["jaxpr"]
    shapes = [[x.aval.shape for x in outside] for outside in (equation.invars, variables)]
    if shapes != [[x.shape for x in inside] for inside in (body.in_avals, body.out_avals)]:
        raise NotImplementedError("a scan over arrays in a kernel")
    n_consts = len(operands) - len(variables)
    consts = operands[:n_consts]

    def once(_: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        return _flat(by_rows(body.jaxpr, body.consts, [*consts, *_shaped(carry, variables)]), variables)

    start = _flat(operands[n_consts:], variables)
    return _shaped(jax.lax.fori_loop(0, p["length"], once, start), variables)


LOOPS: dict[str, Callable[[Any, list[Rows]], list[Rows]]] = {"while": _while, "scan": _scan}
