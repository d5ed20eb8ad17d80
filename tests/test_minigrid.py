"""MiniG equals the public minigrid package: cell for cell, step for step, and in the distribution of its layouts."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import procurl
from procurl.envs.minigrid import MiniGrid
from procurl.envs.minigrid.families import (
    BITS,
    BLOCKED,
    CROSSING,
    DYNAMIC,
    FAMILIES,
    FOUR_ROOMS,
    PICKUP,
    UNLOCK,
    nearest_family,
)
from procurl.envs.minigrid.grid import (
    BALL,
    BOX,
    DOOR,
    EMPTY,
    GOAL,
    GONE,
    IN_HAND,
    KEY,
    LAVA,
    ROW,
    State,
    move_obstacles,
    play,
)
from procurl.envs.minigrid.layouts import start_in_room
from procurl.envs.minigrid.pool import FAMILY_OF_SEED, FILE, SHARES, provenance
from procurl.envs.minigrid.render import render
from procurl.envs.minigrid.view import observe
from procurl.types import Task

package = pytest.importorskip(
    "procurl.envs.minigrid.package", reason="needs the minigrid package", exc_type=ImportError
)
import minigrid_players as players  # noqa: E402

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
EVENTS = {family: events | {"solved", "cut", "cut and solved"} for family, events in EVENTS.items()}
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


def check_equal(family, n_streams, n_steps, first_seed, crowded=False):
    data, seen = players.record(family, n_streams, n_steps, first_seed, crowded)
    ours = [np.asarray(x) for x in replay(data)]
    for name, x in zip(("before", "after", "reward", "terminated", "truncated"), ours, strict=True):
        wrong = np.argwhere(x != data[name])
        assert not len(wrong), f"{name} differs at {len(wrong)} places, first at (step, stream, ..) {wrong[0]}"
    return seen


def assert_every_event(family, seen):
    missing = [e for e in EVENTS[family] if not seen[e]]
    assert not missing, f"never happened: {missing}, but {dict(seen)}"


@by_family
def test_equals_the_package(family):
    seen = check_equal(family, n_streams=20, n_steps=120, first_seed=0)
    assert seen["steps"] >= 2000 and seen["episodes"] >= 20
    assert_every_event(family, seen)


def test_equals_the_package_on_boards_that_no_family_has():
    """Several keys and doors of all colours and states, walls anywhere: rules that the six families hardly try."""
    seen = check_equal(PICKUP, n_streams=20, n_steps=120, first_seed=0, crowded=True)
    assert all(seen[e] for e in ("wrong key", "died at lava", "hands were full", "solved")), dict(seen)


@pytest.mark.slow
@by_family
def test_equals_the_package_at_length(family):
    seen = check_equal(family, n_streams=200, n_steps=150, first_seed=1_000_000)
    assert seen["steps"] >= 20_000 and seen["episodes"] >= 200
    assert_every_event(family, seen)


reset = jax.jit(jax.vmap(MiniGrid().reset))
many_moves = jax.jit(jax.vmap(move_obstacles, (0, None)))


def starts(families, seeds):
    """The states at the start of these tasks, in NumPy. As many at once as the pool has: one program serves all."""
    families, seeds = np.broadcast_arrays(families, seeds)
    n, size = len(seeds), len(FAMILY_OF_SEED)
    parts = []
    for rows in np.resize(np.arange(n), (-(-n // size), size)):
        tasks = Task(BITS[families[rows]], seeds[rows].astype(np.int32), np.full(size, -1, np.int32))
        parts.append(reset(tasks)[0])
    return jax.tree.map(lambda *x: np.concatenate(x)[:n], *parts)


@pytest.fixture(scope="module")
def space():
    return procurl.make("minigrid")[1]


def test_the_pool_starts_as_the_package_does(space):
    obs = np.asarray(reset(space.pool)[1])
    envs = {family: package.make(family) for family in range(6)}
    for seed, family in enumerate(FAMILY_OF_SEED):
        first, _ = envs[family].reset(seed=seed)
        np.testing.assert_array_equal(obs[seed], package.observation(family, first), err_msg=f"seed {seed}")


def test_the_pool_is_that_of_the_specification(space):
    """Numbers that were measured with the released code, not with ours."""
    counts = [int((np.asarray(space.pool.context) == BITS[f]).all(axis=1).sum()) for f in range(6)]
    assert dict(zip(range(6), counts, strict=True)) == dict(SHARES) | {BLOCKED: 83}
    state, obs = reset(space.pool)
    image = np.asarray(obs)[:, :147].astype(int)
    sums = {0: 125, 1: 125, 250: 189, 500: 88, 750: 57, 834: 68, 917: 117, 999: 57}
    assert {seed: image[seed].sum() for seed in sums} == sums
    view = image[917].reshape(7, 7, 3)[..., 0].T
    np.testing.assert_array_equal(view[1], [0, 2, 2, 2, 2, 2, 4])
    np.testing.assert_array_equal(view[6], [0, 2, 1, 1, 5, 1, 1])
    assert int(state.agent[500]) == 6 + ROW * 12 and int(state.agent[999]) == 4 + ROW * 1
    assert provenance()["minigrid"] >= "3.2"
    assert FILE.stat().st_size < 20_000


def test_a_seed_of_the_pool_means_its_layout_only_with_its_own_family():
    pooled, other = starts(PICKUP, [834, 900]), starts(BLOCKED, [834, 900])
    assert pooled.agent[0] == 1 + ROW * 3
    assert (other.family == BLOCKED).all() and (other.cells[:, 3] != GONE).all()


def features(state):
    """What a layout is made of, as one label per property: the same for the package's and for ours."""
    cell = {int(code): int(c) for c, code in zip(state.cells, state.codes, strict=True) if c != GONE}
    of_kind = {}
    for code, c in cell.items():
        of_kind.setdefault(code & 15, (c, code >> 4 & 7))
    labels = {"agent": int(state.agent), "direction": int(state.direction)}
    if state.family == CROSSING:
        lava = sorted(int(c) for c, code in zip(state.cells, state.codes, strict=True) if code == LAVA and c != GONE)
        labels["river and opening"] = str(lava)
    elif state.family == DYNAMIC:
        balls = [int(c) for c in state.cells[:4]]
        labels |= {f"ball {k}": c for k, c in enumerate(balls)}
        labels["two balls meet"] = str(abs(balls[0] - balls[1])) if abs(balls[0] - balls[1]) in (1, ROW) else "no"
    elif state.family == FOUR_ROOMS:
        goal = cell[GOAL]
        gaps = {int(c) for c, code in zip(state.cells, state.codes, strict=True) if code == EMPTY and c != GONE}
        gaps = sorted(gaps | ({goal} if 9 in (goal % ROW, goal // ROW) else set()))  # a goal may fill a gap
        labels |= {f"gap {k}": c for k, c in enumerate(gaps)}
        labels |= {"goal x": goal % ROW, "goal y": goal // ROW, "agent": int(state.agent) % ROW}
        labels |= {
            "agent y": int(state.agent) // ROW,
            "agent in a gap": int(state.agent) in gaps,
            "goal in a gap": goal in gaps,
        }
        labels["same room"] = (goal % ROW > 9) == (labels["agent"] > 9), (goal // ROW > 9) == (labels["agent y"] > 9)
    else:
        door, key = of_kind[DOOR], of_kind[KEY]
        assert door[1] == key[1]
        labels |= {"door row": door[0] // ROW, "door colour": door[1], "key": key[0]}
        before_door, apart = door[0] - 1, int(state.agent) - key[0]
        labels["faces the wall beside the door"] = abs(int(state.agent) - before_door), labels["direction"] == 0
        labels["beside the key"] = (apart, labels["direction"]) if abs(apart) in (1, ROW) else "no"
        if BOX in of_kind:
            labels |= {"box": of_kind[BOX][0], "box colour": of_kind[BOX][1]}
        if BALL in of_kind:
            assert of_kind[BALL][0] == before_door
            labels |= {"ball colour": of_kind[BALL][1], "key to ball": key[0] - before_door}
    return labels


def our_layouts(family, n):
    state = starts(family, 1000 + np.arange(n))
    return [features(State(*(x[i] for x in state))) for i in range(n)]


def package_layouts(family, n):
    env, rows = package.make(family), []
    env.reset(seed=12345)
    for _ in range(n):
        # the grid alone: the observation is not asked for, which is most of a reset's time
        env.agent_pos, env.agent_dir = (-1, -1), -1
        env._gen_grid(env.width, env.height)
        rows.append(features(State(**package.state_arrays(family, env))))
    return rows


def homogeneity(ours, theirs):
    """p-value of the chi-square test that two samples have one distribution; rare labels are taken together."""
    labels = sorted({*ours, *theirs}, key=str)
    table = np.array([[count[label] for label in labels] for count in (Counter(ours), Counter(theirs))])
    rare = table.sum(axis=0) < 10
    if rare.any():
        table = np.concatenate([table[:, ~rare], table[:, rare].sum(axis=1, keepdims=True)], axis=1)
    table = table[:, table.sum(axis=0) > 0]
    return 1.0 if table.shape[1] < 2 else stats.chi2_contingency(table).pvalue


@pytest.mark.parametrize(
    "family",
    [pytest.param(k, marks=[] if k % 3 == 0 else [pytest.mark.slow]) for k in range(6)],
    ids=[f.name for f in FAMILIES],
)
def test_layouts_are_distributed_as_the_package_s(family):
    n = 3000
    ours, theirs = our_layouts(family, n), package_layouts(family, n)
    p = {name: homogeneity([row[name] for row in ours], [row[name] for row in theirs]) for name in theirs[0]}
    assert min(p.values()) > 1e-4, p
    if family == CROSSING:
        assert len({row["river and opening"] for row in ours}) == 42
    if family == BLOCKED:
        assert len({row["box"] for row in ours}) == 20 and len({row["key"] for row in ours}) == 25


many_starts = jax.jit(jax.vmap(start_in_room, (None, None, 0)))


@pytest.mark.parametrize("family", [UNLOCK, BLOCKED], ids=["unlock", "blocked-unlock-pickup"])
def test_starts_in_a_room_are_exactly_the_allowed_ones(family):
    """Of all (cell, direction) each allowed one has the same share, against a slow list of them."""
    n = 20_000
    chance = ((np.arange(n) + 0.5) / n).astype(np.float32)
    for row, key_place in itertools.product(range(5), (0, 7, 14, 19, 20, 24)):
        if family == BLOCKED and key_place == 4 + 5 * row:
            continue
        before_door, key = (5, 1 + row), (1 + key_place % 5, 1 + key_place // 5)
        things = {key} | ({before_door} if family == BLOCKED else set())
        allowed = set()
        for x, y, d in itertools.product(range(1, 6), range(1, 6), range(4)):
            front = (x + players.STEPS[d][0], y + players.STEPS[d][1])
            if (x, y) not in things and front not in things | {(6, 1 + row)}:
                allowed.add((x, y, d))
        bits = [sum(1 << x - 1 + 5 * (y - 1) for x, y in cells) for cells in (things, [before_door])]
        place, direction = map(np.asarray, many_starts(*map(np.int32, bits), chance))
        found, count = np.unique(4 * place + direction, return_counts=True)
        assert {(1 + k // 4 % 5, 1 + k // 20, k % 4) for k in found} == allowed
        assert max(count) - min(count) <= 2


def with_balls(places, agent):
    """A state of Dynamic Obstacles with the balls and the agent in these cells."""
    start = State(*(x[0] for x in starts(DYNAMIC, [250])))
    return start._replace(cells=np.concatenate([np.int32(places), start.cells[4:]]), agent=np.int32(agent))


def test_obstacles_move_as_the_package_s():
    """From crowded places, where the order of the moves and the cells that are taken matter."""
    n = 4000
    env = package.make(DYNAMIC)
    env.reset(seed=0)
    env.gen_obs = dict  # the observation is not asked for, which is most of a step's time
    balls = [(6, 7), (6, 6), (7, 6), (5, 6)]  # round the goal, with the agent beside them
    places = []
    for _ in range(n):
        for ball in env.obstacles:
            env.grid.set(*ball.cur_pos, None)
        for ball, place in zip(env.obstacles, balls, strict=True):
            env.put_obj(ball, *place)
        env.agent_pos, env.agent_dir, env.step_count = (5, 7), 3, 0
        env.step(0)
        places.append([int(b.cur_pos[0] + ROW * b.cur_pos[1]) for b in env.obstacles])
    start = with_balls([x + ROW * y for x, y in balls], agent=5 + ROW * 7)
    moved = np.asarray(many_moves(jax.random.split(jax.random.key(0), n), start))[:, :4].tolist()
    for k in range(4):
        assert homogeneity([m[k] for m in moved], [m[k] for m in places]) > 1e-4
    assert homogeneity([str(m[:2]) for m in moved], [str(m[:2]) for m in places]) > 1e-4
    assert all(len(set(m)) == 4 and 7 + ROW * 7 not in m and 5 + ROW * 7 not in m for m in moved)


def test_an_enclosed_obstacle_stays():
    start = with_balls([1 + ROW, 2 + ROW, 1 + ROW * 2, 2 + ROW * 2], agent=7 + ROW)
    moved = np.asarray(many_moves(jax.random.split(jax.random.key(0), 4000), start))
    assert (moved[:, 0] == 1 + ROW).all()
    assert not np.isin(moved[:, 1:4], start.cells[1:4]).all()


def test_loops_written_out_for_accelerators_give_the_same(space, monkeypatch):
    def moves_and_view():  # a new function, which is traced anew
        return jax.jit(jax.vmap(lambda key, state: (move_obstacles(key, state), observe(state))))

    state, obs = reset(space.pool)
    keys = jax.random.split(jax.random.key(0), len(obs))
    moved, _ = moves_and_view()(keys, state)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cpu, default: default(*args))
    for ours, expected in zip(moves_and_view()(keys, state), (moved, obs), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_contexts_are_projected_to_the_nearest_family(space):
    rng = np.random.default_rng(0)
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=8)), np.float32)
    anywhere = rng.uniform(-0.5, 1.5, (500, 8)).astype(np.float32)
    project = jax.jit(space.project)
    projected = project(np.concatenate([corners, BITS, anywhere]))  # in one program
    family = np.asarray(jax.jit(nearest_family)(projected))[:256]
    counts = {f: int((family == f).sum()) for f in range(6)}
    assert counts == {CROSSING: 104, DYNAMIC: 44, UNLOCK: 28, FOUR_ROOMS: 8, BLOCKED: 36, PICKUP: 36}
    np.testing.assert_array_equal(projected[256:262], BITS)
    rounded = np.round(np.clip(anywhere, 0, 1))
    nearest = [min(range(6), key=lambda f: np.sum((c - BITS[f]) ** 2)) for c in rounded]
    np.testing.assert_array_equal(projected[262:], BITS[nearest])
    np.testing.assert_array_equal(project(np.full(8, 0.5, np.float32)), BITS[FOUR_ROOMS])  # a half rounds to even


def test_the_setting_is_as_specified(space):
    env = MiniGrid()
    procurl.check_env(env, space, steps=100)
    assert env.max_steps == 784 and env.truncates and env.obs_size == 156
    assert space.value_range == (0.0, 1.0) and not space.fresh_seeds and space.n_pool == 1000
    drawn = jax.jit(lambda key: space.sample_target(key, 50))(jax.random.key(0))
    for sample, n in ((space.targets, 400), (space.held_out, 100), (drawn, 50)):
        np.testing.assert_array_equal(sample.context, np.tile(BITS[BLOCKED], (n, 1)))
        assert len(np.unique(sample.seed)) == n and (np.asarray(sample.seed) >= 1000).all()
    assert not np.isin(space.targets.seed, space.held_out.seed).any()
    paper, release = procurl.preset("minigrid"), procurl.preset("minigrid", "release")
    sizes = (256, 128, 64, 32)
    assert paper.ppo == procurl.PPO(n_steps=25_600, batch_size=64, entropy=0.01, shared=sizes, separate=())
    assert (release.ppo.shared, release.ppo.separate) == ((), sizes)
    assert paper.evaluate_every * paper.ppo.n_steps == 102_400
    assert procurl.make_teacher("procurl-target", space).beta == 110.0


def test_pictures_show_what_is_there():
    crossing, blocked = (State(*fields) for fields in zip(*starts([CROSSING, BLOCKED], [0, 917]), strict=True))
    picture = render(crossing, tile=16, highlight=False)
    assert picture.shape == (9 * 16, 9 * 16, 3) and picture.dtype == np.uint8
    assert render(blocked, tile=8).shape == (7 * 8, 13 * 8, 3)

    def tile_at(picture, x, y):
        return picture[y * 16 : (y + 1) * 16, x * 16 : (x + 1) * 16].astype(int)

    lava, floor, wall, agent = (tile_at(picture, *cell) for cell in ((3, 2), (1, 2), (0, 0), (1, 1)))
    assert np.ptp(wall.reshape(-1, 3), axis=0).max() == 0, "a wall is one colour"
    assert (lava[..., 0] > 200).mean() > 0.4 and (floor.max(axis=2) < 100).all()
    red = agent[..., 0] > 200
    assert red[:, :8].sum() > red[:, 8:].sum() > 0 and (red == red[::-1]).all(), "the triangle points to the right"
    lit = render(crossing, tile=16)
    assert tile_at(lit, 1, 3).sum() > tile_at(picture, 1, 3).sum(), "seen"
    np.testing.assert_array_equal(tile_at(lit, 7, 7), tile_at(picture, 7, 7))  # too far away

    key = int(np.flatnonzero(blocked.codes % 16 == KEY)[0])
    held = blocked._replace(cells=np.where(np.arange(len(blocked.cells)) == key, IN_HAND, blocked.cells))
    x, y = int(blocked.cells[key]) % ROW, int(blocked.cells[key]) // ROW
    before, after = render(blocked, 16, False), render(held, 16, False)
    assert (tile_at(before, x, y) != tile_at(after, x, y)).any() and (
        tile_at(before, 1, 2) != tile_at(after, 1, 2)
    ).any()
