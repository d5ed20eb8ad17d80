"""Classes of equal shape get their own programs, in every entry, whoever registered them and however deeply nested."""

import ast
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from equal_shapes import ENTRIES

import procurl
from procurl.envs.maze import Maze
from procurl.envs.point_mass import PointMass
from procurl.programs import jit, pytree

SOURCES = sorted(Path(procurl.__file__).parent.rglob("*.py"))


def numbered(k, register):
    @register
    @dataclasses.dataclass(frozen=True)
    class Node:
        leaf: float = 0.0
        static: int = dataclasses.field(default=7, metadata={"static": True})

        def number(self):
            return jnp.int32(k)

    return Node


def test_nested_classes_of_jaxs_own_decorator_get_their_own_programs():
    """Some 10 of 50 are mixed up by `jax.jit` itself with jaxlib 0.10."""
    number = jit(lambda outer, x: outer["here"][0].number())
    outer = [{"here": (numbered(k, jax.tree_util.register_dataclass)(), k)} for k in range(50)]
    assert [int(number(node, 0)) for node in outer] == list(range(50))
    shape = jit(lambda node: jnp.zeros(node.number.__closure__[0].cell_contents))
    assert [shape.eval_shape(node["here"][0]).shape for node in outer] == [(k,) for k in range(50)]


def test_our_own_classes_differ_in_their_structure():
    classes = [numbered(k, pytree) for k in range(3)]
    for a, b in itertools.combinations([cls() for cls in classes], 2):
        assert jax.tree.structure(a) != jax.tree.structure(b)
    assert jax.tree.structure(PointMass(max_steps=7)) != jax.tree.structure(Maze(max_steps=7))
    space = procurl.task_space([0.0], [1.0], target=[1.0], pool_size=4, n_targets=1, n_held_out=1)
    assert jax.tree.structure(procurl.IID(space)) != jax.tree.structure(procurl.Target(space))


def test_a_pytree_has_the_leaves_paths_and_copies_that_jax_would_give_it():
    ours, theirs = numbered(0, pytree)(2.0, 9), numbered(0, jax.tree_util.register_dataclass)(2.0, 9)
    assert jax.tree_util.tree_leaves_with_path(ours) == jax.tree_util.tree_leaves_with_path(theirs)
    doubled = jax.tree.map(lambda x: 2 * x, ours)
    assert isinstance(doubled, type(ours)) and (doubled.leaf, doubled.static) == (4.0, 9)
    assert jax.tree.structure(ours) != jax.tree.structure(dataclasses.replace(ours, static=8))


def test_a_program_is_compiled_once_for_a_class():
    traced = []

    @jit
    def noted(node):
        traced.append(type(node))
        return node.leaf

    a, b = (numbered(k, jax.tree_util.register_dataclass) for k in (1, 2))
    for node in (a(1.0), b(1.0), a(2.0), b(2.0)):
        assert float(noted(node)) == node.leaf
    assert traced == [a, b]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_but_programs_calls_jax_jit(path):
    """So that entries which are yet to be written are safe, too."""
    if path.name in ("programs.py", "selftest.py"):  # the latter looks whether JAX has the fault
        return
    forbidden = {"jit", "pmap", "register_dataclass"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in forbidden:
            assert ast.unparse(node.value) not in ("jax", "jax.tree_util", "tree_util"), (path, node.lineno)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jax"):
            assert not forbidden & {alias.name for alias in node.names}, (path, node.lineno)


def mixed_up(n, *entries):
    """The numbers of those classes that got a wrong answer, by entry; each process has addresses of its own."""
    script = Path(__file__).parent / "equal_shapes.py"
    run = subprocess.run(
        [sys.executable, script, str(n), *entries], capture_output=True, text=True, check=True,
        env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"},  # nobody else has these programs
    )  # fmt: skip
    return json.loads(run.stdout)


def test_classes_of_equal_shape_get_their_own_answers():
    """Of 15 teachers and as many environments: before, about one in five got another's."""
    assert mixed_up(15, "curriculum", "gymnasium") == {"curriculum": [], "gymnasium": []}


COSTLY = ("train", "check_teacher", "check_env")  # seconds for a class: a hundred in all processes together


@pytest.mark.slow
@pytest.mark.parametrize("process", range(3))
@pytest.mark.parametrize("entry", ENTRIES)
def test_in_several_processes_and_in_every_entry(entry, process):
    assert mixed_up(34 if entry in COSTLY else 100, entry) == {entry: []}
