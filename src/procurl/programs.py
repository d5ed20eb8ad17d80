"""The right program every time: compiled functions that never take one class for another.

Environments, teachers and their states travel into compiled functions as arguments, so that all instances of a class
share one program. `jax.jit` finds the program by the arguments' tree structure, and in jaxlib 0.10 two classes
registered with `jax.tree_util.register_dataclass` have equal structures wherever their static values and their number
of leaves agree: now and then one class is silently served the other's program (`docs/mixed-up-programs.md`).

So `jit` here looks at the classes itself, whoever registered them and however deeply they are nested, and gives every
combination of classes a `jax.jit` of its own. Nothing else in this package calls `jax.jit`. `pytree` registers our own
classes in a way that is also safe in other people's `jax.jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import lru_cache, update_wrapper, wraps
from typing import Any, TypeVar

import jax

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before jax 0.10
    from jax.core import get_opaque_trace_state
from jax.tree_util import GetAttrKey, PyTreeDef

T = TypeVar("T")
KEPT = 64  # combinations of classes per function; a forgotten one is compiled again


def classes(structure: PyTreeDef) -> Hashable:
    """The classes of a tree's nodes, in their places. Unlike the structures themselves, these can be compared."""
    node = structure.node_data()  # (class, static values); None for a leaf
    return (node[0], *map(classes, structure.children())) if node else None


def kind(tree: Any) -> Hashable:
    """Everything in a tree that determines the program compiled for it, except the types of its arrays."""
    structure = jax.tree.structure(tree)
    return structure, classes(structure)


class Program:
    """A function with one `jax.jit` for every combination of classes among its arguments; `jit` makes it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        @lru_cache(maxsize=KEPT)
        def for_classes(_: Hashable) -> Any:
            # A new function object each time: JAX's caches are keyed by the function, too.
            return jax.jit(wraps(function)(lambda *args, **named: function(*args, **named)), **options)

        self._for_classes = for_classes
        update_wrapper(self, function)

    def of(self, *args: Any, **named: Any) -> Any:
        """The `jax.jit` function for such arguments."""
        return self._for_classes(classes(jax.tree.structure((args, named))))

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.of(*args, **named)(*args, **named)

    def eval_shape(self, *args: Any, **named: Any) -> Any:
        """Shapes and types of what it would return. (`jax.eval_shape` has caches of its own.)"""
        return self.of(*args, **named).eval_shape(*args, **named)

    def trace(self, *args: Any, **named: Any) -> Any:
        return self.of(*args, **named).trace(*args, **named)

    def lower(self, *args: Any, **named: Any) -> Any:
        return self.of(*args, **named).lower(*args, **named)


def innermost_trace() -> Hashable:
    """What is being traced right now: equal at two moments that may use each other's arrays."""
    return get_opaque_trace_state(convention="flax")  # type: ignore[no-any-return]


def jit(function: Callable[..., Any], **options: Any) -> Program:
    """`jax.jit` with the same options, which cannot mix up classes."""
    return Program(function, options)


def pytree(cls: type[T]) -> type[T]:
    """A frozen dataclass as a tree of its fields; those marked `static` in their metadata shape the program.

    The same as `jax.tree_util.register_dataclass`, but the class is part of the structure in every version of JAX.
    """
    given = [f for f in fields(cls) if f.init]  # type: ignore[arg-type]
    static = tuple(f.name for f in given if f.metadata.get("static"))
    data = tuple(f.name for f in given if not f.metadata.get("static"))
    keys = tuple(map(GetAttrKey, data))

    def flatten(node: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(node, name) for name in data), tuple(getattr(node, name) for name in static)

    def flatten_with_keys(node: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, values = flatten(node)
        return tuple(zip(keys, children, strict=True)), values

    def unflatten(values: tuple[Any, ...], children: Any) -> T:
        return cls(**dict(zip(static, values, strict=True)), **dict(zip(data, children, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
