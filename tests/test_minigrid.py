"""MiniG equals the public minigrid package: cell for cell, step for step, and in the distribution of its layouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from procurl.envs.minigrid.families import BLOCKED, CROSSING, DYNAMIC, FAMILIES, FOUR_ROOMS, PICKUP, UNLOCK
from procurl.envs.minigrid.grid import State, play
from procurl.envs.minigrid.view import observe

players = pytest.importorskip("minigrid_players", reason="needs the minigrid package", exc_type=ImportError)

ROOM_EVENTS = {
    "took key", "dropped key", "no room to drop", "door locked to open", "door stayed locked",
}  # fmt: skip
BOX_EVENTS = ROOM_EVENTS | {
    "hands were full", "door open to closed", "door closed to open", "went through door", "took box", "broke box",
}  # fmt: skip
EVENTS = {
    CROSSING: {"died at lava"},
    DYNAMIC: {"died at ball", "died at wall", "ball moved away, died", "ball stayed, died", "ball came in the way"},
    FOUR_ROOMS: set(),
    UNLOCK: ROOM_EVENTS,
    PICKUP: BOX_EVENTS,
    BLOCKED: BOX_EVENTS | {"took ball", "dropped ball", "carried ball", "door stayed locked with a thing in hand"},
}
by_family = pytest.mark.parametrize("family", range(6), ids=[f.name for f in FAMILIES])


@jax.jit
def replay(data):
    """Our own states and observations along the recorded streams; the obstacles' moves are the package's."""

    def step(state, x):
        start = State(**{name: x[f"start_{name}"] for name in State._fields})
        state = jax.tree.map(lambda a, b: jnp.where(x["fresh"], a, b), start, state)
        moved = jnp.where(state.family == DYNAMIC, state.cells.at[:4].set(x["balls"]), state.cells)
        before = observe(state)
        state, outcome = play(state, x["action"], moved)
        return state, (
            before,
            observe(state),
            outcome.success.astype(jnp.float32),
            outcome.terminated,
            outcome.truncated,
        )

    first = State(**{name: data[f"start_{name}"][0] for name in State._fields})
    return jax.lax.scan(jax.vmap(step), first, data)[1]


def check_equal(family, n_streams, n_steps, first_seed):
    data, seen = players.record(family, n_streams, n_steps, first_seed)
    ours = [np.asarray(x) for x in replay(data)]
    for name, x in zip(("before", "after", "reward", "terminated", "truncated"), ours, strict=True):
        wrong = np.argwhere(x != data[name])
        assert not len(wrong), f"{name} differs at {len(wrong)} places, first at (step, stream, ..) {wrong[0]}"
    return seen


@by_family
def test_equals_the_package(family):
    seen = check_equal(family, n_streams=20, n_steps=120, first_seed=0)
    assert seen["steps"] >= 2000 and seen["episodes"] >= 20
    missing = [e for e in {"solved", "cut"} | EVENTS[family] if not seen[e]]
    assert not missing, f"never happened: {missing}, but {dict(seen)}"


@pytest.mark.slow
@by_family
def test_equals_the_package_at_length(family):
    seen = check_equal(family, n_streams=200, n_steps=150, first_seed=1_000_000)
    assert seen["steps"] >= 20_000 and seen["episodes"] >= 200
    missing = [e for e in {"solved", "cut", "cut and solved"} | EVENTS[family] if not seen[e]]
    assert not missing, f"never happened: {missing}, but {dict(seen)}"
