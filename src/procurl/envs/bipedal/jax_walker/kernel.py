"""A function of many walkers as one GPU kernel, in which every walker is a program of its own.

XLA makes dozens of kernels out of one iteration of the solver, and with a thousand or so walkers, starting them takes
far longer than running them. `in_one_kernel` hands a loop of the solver to Pallas as a whole: all numbers of a walker
are scalars in registers, and the loop ends when that walker is done. An H200 then makes fourteen times as many steps
with 1280 walkers. (A whole step can be one kernel, too, but took two minutes to compile.)

The physics is written for arrays [..., N]. So the function is traced once for a single walker, and its operations are
repeated for every number of its arrays (`by_numbers`): arithmetic number by number, while reshapes, slices and stacks
only rearrange which number is where, and cost nothing.

Why scalars, and not a vector of walkers with a thread each? Triton's pass "coalesce" goes through the whole program for
every vector that is loaded or stored: minutes for each of the solver's loops. It leaves scalars alone. The threads of a
warp then all do the same, but a GPU has enough warps for a thousand walkers, and time is lost waiting, not computing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
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
Numbers = NDArray[Any]  # an array of scalars: traced ones and constants

ON = True  # `benchmarks/bipedal_jax.py speed --alone --device gpu` times the functions without kernels, too


def in_one_kernel(function: F) -> F:
    """`function` of arrays [..., N]; on a GPU, as one kernel."""

    def run(*args: Any) -> Any:
        possible = jax.default_backend() == "gpu" and find_spec("jax.experimental.pallas.triton") is not None
        return as_kernel(function, *args) if possible and ON else function(*args)

    return wraps(function)(run)  # type: ignore[return-value]


def as_kernel(function: Callable[..., Any], *args: Any, interpret: bool = False) -> Any:
    """`function(*args)` by one kernel; `interpret` runs it without a GPU."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    given, structure = jax.tree.flatten(args)
    n = given[0].shape[-1]

    def of_one(*arrays: Array) -> list[Array]:
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, arrays)))

    one = [jax.ShapeDtypeStruct((*x.shape[:-1], 1), x.dtype) for x in given]
    traced = jax.make_jaxpr(of_one)(*one)

    def kernel(*refs: Any) -> None:
        inputs, outputs = refs[: len(given)], refs[len(given) :]
        values = [_loaded(ref, x) for ref, x in zip(inputs, one, strict=True)]
        for ref, result in zip(outputs, by_numbers(traced.jaxpr, traced.consts, values), strict=True):
            for k, number in enumerate(result.flat):
                ref[k, 0] = jnp.asarray(number).astype(ref.dtype)

    def columns(x: Any) -> jax.ShapeDtypeStruct:
        """[numbers, N], and integers in place of bools."""
        rows = int(np.prod(x.shape[:-1], dtype=int))
        return jax.ShapeDtypeStruct((rows, n), jnp.int32 if x.dtype == bool else x.dtype)

    def spec(x: jax.ShapeDtypeStruct) -> Any:
        return pl.BlockSpec((x.shape[0], 1), lambda i: (0, i))

    held, made = [columns(x) for x in one], [columns(x) for x in traced.out_avals]
    results = pl.pallas_call(
        kernel,
        grid=(n,),
        in_specs=[spec(x) for x in held],
        out_specs=[spec(x) for x in made],
        out_shape=made,
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name=function.__name__,
    )(*(x.reshape(y.shape).astype(y.dtype) for x, y in zip(given, held, strict=True)))
    whole = [y.reshape(*x.shape[:-1], n).astype(x.dtype) for y, x in zip(results, traced.out_avals, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(function, *args)), whole)


def _loaded(ref: Any, x: jax.ShapeDtypeStruct) -> Numbers:
    numbers = np.empty(x.shape, object)
    for k in range(numbers.size):
        number = ref[k, 0]
        numbers.flat[k] = number != 0 if x.dtype == bool else number
    return numbers


# --- the interpreter


def by_numbers(jaxpr: Any, consts: Iterable[Any], args: Iterable[Any]) -> list[Any]:
    """What a traced function computes, from numbers to numbers."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_constant, consts), strict=True))
    values |= dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return _constant(atom.val) if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, [read(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if name in CONTROL:
            results = CONTROL[name](equation, operands)
        elif inner is not None:
            results = by_numbers(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
        elif name in REARRANGED:
            results = [REARRANGED[name](equation, *operands)]
        elif name == "unstack":
            results = list(np.moveaxis(operands[0], equation.params["axis"], 0))
        elif name in FOLDED:
            results = [_folded(equation, operands[0])]
        elif name == "optimization_barrier":
            results = operands
        else:
            results = [_by_number(equation, operands)]
        values |= dict(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _constant(x: Any) -> Numbers:
    numbers = np.empty(np.shape(x), object)
    numbers[...] = np.asarray(x)
    return numbers


def _by_number(equation: Any, operands: list[Numbers]) -> Numbers:
    """Arithmetic: the same operation for every number."""
    results = np.empty(equation.outvars[0].aval.shape, object)
    operands = [np.broadcast_to(operand, results.shape) for operand in operands]
    types = [variable.aval.dtype for variable in equation.invars]
    for place in np.ndindex(results.shape):
        mine: list[Any] = [operand[place] for operand in operands]
        known = not any(isinstance(x, jax.core.Tracer) for x in mine)
        with jax.ensure_compile_time_eval() if known else nullcontext():
            mine = [jnp.asarray(x, dtype) for x, dtype in zip(mine, types, strict=True)]
            result = equation.primitive.bind(*mine, **equation.params)
            results[place] = np.asarray(result)[()] if known else result
    return results


def _spread(equation: Any, numbers: Numbers) -> Numbers:
    shape = equation.params["shape"]
    thin = [1] * len(shape)
    for size, dimension in zip(numbers.shape, equation.params["broadcast_dimensions"], strict=True):
        thin[dimension] = size
    return np.broadcast_to(numbers.reshape(thin), shape)


def _reshaped(equation: Any, numbers: Numbers) -> Numbers:
    return numbers.reshape(equation.outvars[0].aval.shape)


def _sliced(equation: Any, numbers: Numbers) -> Numbers:
    p = equation.params
    return numbers[tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or [1] * numbers.ndim))]


def _joined(equation: Any, *operands: Numbers) -> Numbers:
    return np.concatenate(operands, axis=equation.params["dimension"])


def _stacked(equation: Any, *operands: Numbers) -> Numbers:
    return np.stack(operands, axis=equation.params["axis"])


REARRANGED: dict[str, Callable[..., Numbers]] = {
    "broadcast_in_dim": _spread, "reshape": _reshaped, "squeeze": _reshaped, "slice": _sliced, "concatenate": _joined,
    "stack": _stacked,
}  # fmt: skip
FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_min": jnp.minimum, "reduce_max": jnp.maximum, "reduce_sum": jnp.add,
    "reduce_and": jnp.logical_and, "reduce_or": jnp.logical_or,
}  # fmt: skip


def _folded(equation: Any, numbers: Numbers) -> Numbers:
    axes = equation.params["axes"]
    kept = [axis for axis in range(numbers.ndim) if axis not in axes]
    by_place = np.moveaxis(numbers, kept, range(len(kept))).reshape(*(numbers.shape[axis] for axis in kept), -1)
    result = np.empty(by_place.shape[:-1], object)
    for place in np.ndindex(result.shape):
        result[place] = reduce(FOLDED[equation.primitive.name], by_place[place])
    return result


def _flat(values: Iterable[Numbers], variables: Iterable[Any]) -> tuple[Array, ...]:
    """What a loop carries."""
    pairs = zip(values, variables, strict=True)
    return tuple(jnp.asarray(number, variable.aval.dtype) for value, variable in pairs for number in value.flat)


def _shaped(flat: Iterable[Any], variables: Iterable[Any]) -> list[Numbers]:
    left, shaped = iter(flat), []
    for variable in variables:
        numbers = np.empty(variable.aval.shape, object)
        for k in range(numbers.size):
            numbers.flat[k] = next(left)
        shaped.append(numbers)
    return shaped


def _while(equation: Any, operands: list[Any]) -> list[Numbers]:
    p = equation.params
    for_cond, for_body = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    variables = equation.outvars
    cond, body = p["cond_jaxpr"], p["body_jaxpr"]

    def goes_on(carry: Any) -> Any:
        [numbers] = by_numbers(cond.jaxpr, cond.consts, [*operands[:for_cond], *_shaped(carry, variables)])
        return numbers[()]

    def once(carry: Any) -> Any:
        after = by_numbers(body.jaxpr, body.consts, [*operands[for_cond:for_body], *_shaped(carry, variables)])
        return _flat(after, variables)

    return _shaped(jax.lax.while_loop(goes_on, once, _flat(operands[for_body:], variables)), variables)


def _scan(equation: Any, operands: list[Any]) -> list[Numbers]:
    """From a `fori_loop`: nothing but a carry. (Releases of JAX mark it differently, so the shapes have to tell.)"""
    p, variables = equation.params, equation.outvars
    body = p["jaxpr"]
    shapes = [[x.aval.shape for x in outside] for outside in (equation.invars, variables)]
    if shapes != [[x.shape for x in inside] for inside in (body.in_avals, body.out_avals)]:
        raise NotImplementedError("a scan over arrays in a kernel")
    n_consts = len(operands) - len(variables)
    consts = operands[:n_consts]

    def once(_: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        return _flat(by_numbers(body.jaxpr, body.consts, [*consts, *_shaped(carry, variables)]), variables)

    start = _flat(operands[n_consts:], variables)
    return _shaped(jax.lax.fori_loop(0, p["length"], once, start), variables)


def _cond(equation: Any, operands: list[Any]) -> list[Numbers]:
    index, *operands = operands
    variables = equation.outvars
    always = index[()] == index[()]

    def computed(x: Any, y: Array) -> Array:
        """Pallas cannot return a constant from a branch."""
        return y if isinstance(x, jax.core.Tracer) else jnp.where(always, y, y)

    def of(branch: Any) -> Callable[[], tuple[Array, ...]]:
        def results() -> tuple[Array, ...]:
            values = by_numbers(branch.jaxpr, branch.consts, operands)
            numbers = (x for value in values for x in value.flat)
            return tuple(map(computed, numbers, _flat(values, variables)))

        return results

    return _shaped(jax.lax.switch(index[()], [of(branch) for branch in equation.params["branches"]]), variables)


CONTROL: dict[str, Callable[[Any, list[Any]], list[Numbers]]] = {"while": _while, "scan": _scan, "cond": _cond}
