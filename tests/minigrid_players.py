"""Players for the public minigrid package, and a record of what they met, to hold our own grid against.

A player looks at the package's environment and names an action. The expert solves every family; the others fumble,
so that all the things happen that a learner may do: keys dropped, balls carried, boxes broken, deaths of all kinds.
"""

import copy
from collections import Counter, deque

import numpy as np
from minigrid.core.world_object import Ball, Door, Goal, Key, Lava, Wall

from procurl.envs.minigrid import package
from procurl.envs.minigrid.families import DYNAMIC, FAMILIES
from procurl.envs.minigrid.grid import ROW

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
STEPS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])


def front(env):
    return env.grid.get(*env.front_pos)


def kind(cell):
    return cell.type if cell else "empty"


def find(env, name):
    """The place of the first such thing, None if there is none."""
    for y in range(env.height):
        for x in range(env.width):
            if kind(env.grid.get(x, y)) == name:
                return x, y
    return None


def way_to_face(env, target):
    """The next action on the shortest way to stand before `target`; None if one does, "no way" if there is none."""
    start = (*map(int, env.agent_pos), int(env.agent_dir))
    queue, first = deque([start]), {start: None}
    while queue:
        here = queue.popleft()
        x, y, d = here
        ahead = (x + int(STEPS[d][0]), y + int(STEPS[d][1]))
        if ahead == tuple(target):
            return first[here]
        cell = env.grid.get(*ahead)
        free = cell is None or (cell.type == "door" and cell.is_open)
        moves = [(LEFT, (x, y, (d - 1) % 4)), (RIGHT, (x, y, (d + 1) % 4))]
        for action, there in [*moves, *([(FORWARD, (*ahead, d))] if free else [])]:
            if there not in first:
                first[there] = action if first[here] is None else first[here]
                queue.append(there)
    return "no way"


def expert(env, rng):
    """The way to success, from whatever the situation is."""
    goal = find(env, "goal")
    if goal:
        return act_at(env, goal, FORWARD, rng)
    door = find(env, "door")
    door_cell, hand = env.grid.get(*door), kind(env.carrying)
    doorway = [(door[0] - 1, door[1]), (door[0] + 1, door[1])]
    can_open = hand == "key" if door_cell.is_locked else hand in ("key", "empty")
    if can_open and not door_cell.is_open:
        return act_at(env, door, TOGGLE, rng)
    if hand != "empty":  # put it down, but not in the doorway
        spots = [(x, y) for x in range(1, 12) for y in range(1, 6) if env.grid.get(x, y) is None]
        spots = [s for s in spots if s not in doorway and s != tuple(env.agent_pos)]
        ways = {s: way_to_face(env, s) for s in spots}
        if None in ways.values():
            return DROP
        return next((way for way in ways.values() if way != "no way"), LEFT)
    for place in doorway:
        if kind(env.grid.get(*place)) in ("ball", "key") and way_to_face(env, place) != "no way":
            return act_at(env, place, PICK_UP, rng)
    wanted = (find(env, "box") if door_cell.is_open else find(env, "key")) or find(env, "ball")
    return act_at(env, wanted, PICK_UP, rng) if wanted else DONE


def act_at(env, place, action, rng):
    way = way_to_face(env, place)
    if way == "no way":
        return int(rng.integers(7))
    return action if way is None else way


def random_player(env, rng):
    return int(rng.integers(7))


def mischief(env, rng):
    """Pushes, takes, throws down and turns on whatever is in front."""
    cell = kind(front(env))
    if cell in ("key", "ball", "box", "door") and rng.random() < 0.8:
        return int(rng.choice([FORWARD, PICK_UP, DROP, TOGGLE, TOGGLE]))
    if cell == "empty" and env.carrying and rng.random() < 0.2:
        return DROP
    return int(rng.choice([LEFT, RIGHT, FORWARD, FORWARD, FORWARD, FORWARD]))


def clumsy(player, share):
    return lambda env, rng: random_player(env, rng) if rng.random() < share else player(env, rng)


def vandal(env, rng):
    """Opens the door as an expert does, goes for the box, and breaks it; elsewhere, walks into the danger."""
    cell, box, danger = kind(front(env)), find(env, "box"), find(env, "lava") or find(env, "ball")
    if cell == "box":
        return TOGGLE if rng.random() < 0.5 else PICK_UP
    if cell == "door" and front(env).is_open and rng.random() < 0.5:
        return TOGGLE
    if box and env.carrying and way_to_face(env, box) != "no way":  # with full hands
        return act_at(env, box, PICK_UP, rng)
    if box is None and find(env, "goal") and danger:
        return act_at(env, danger, FORWARD, rng)
    return expert(env, rng)


def fool(env, rng):
    """An expert but for trying the locked door with whatever is in hand."""
    door = find(env, "door")
    if door and env.grid.get(*door).is_locked and rng.random() < 0.5:
        return act_at(env, door, TOGGLE, rng)
    return expert(env, rng)


PLAYERS = [
    random_player,
    mischief,
    expert,
    clumsy(expert, 0.15),
    clumsy(mischief, 0.3),
    vandal,
    clumsy(vandal, 0.1),
    fool,
]


def crowd(env, rng):
    """Fill a board of two rooms up to eight things: keys and doors of all colours, walls, lava, and goals."""
    for _ in range(5):
        x, y = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        if env.grid.get(x, y) is not None or (x, y) == tuple(env.agent_pos) or x == 6:
            continue
        colour = rng.choice(package.COLOURS)
        door = Door(colour, *[(True, False), (False, False), (False, True)][rng.integers(3)])
        env.grid.set(
            x, y, [Key(colour), Key(colour), Ball(colour), door, door, Wall(), Lava(), Goal()][rng.integers(8)]
        )


def record(family, n_streams, n_steps, first_seed=0, crowded=False):
    """Streams of play with the package: arrays [n_steps, n_streams, ...] of all that goes in and comes out.

    Each stream plays episodes of new seeds one after the other, each with the next player. Some episodes start near
    their end (in the package's own counter), so that all ways of being cut are met without idle hours.
    """
    rows = [stream(family, n_steps, first_seed + s * 1000, s, crowded) for s in range(n_streams)]
    data, seen = [row for row, _ in rows], sum((count for _, count in rows), Counter())
    return {
        name: np.stack([np.stack([step[name] for step in row]) for row in data], axis=1) for name in data[0][0]
    }, seen


def stream(family, n_steps, seed, turn, crowded=False):
    env, rng = package.make(family), np.random.default_rng([family, seed])
    limit, steps, seen, fresh = FAMILIES[family].max_steps, [], Counter(), True
    for _ in range(n_steps):
        if fresh:
            obs, _ = env.reset(seed=seed)
            if crowded:
                crowd(env, rng)
                obs = env.gen_obs()
            player = PLAYERS[turn % len(PLAYERS)]
            if player is expert:  # more often than not its success shall fall on the very last step
                env.step_count = limit - rehearsal(env, rng) if rng.random() < 0.7 else 0
            elif rng.random() < 0.3:
                env.step_count = int(limit - rng.integers(1, 40))
            start = package.state_arrays(family, env)
            seed, turn, length = seed + 1, turn + 1, 0
            seen["episodes"] += 1
        before = package.observation(family, obs)
        action = int(player(env, rng))
        was, ahead, hand = situation(env), kind(front(env)), kind(env.carrying)
        obs, reward, terminated, truncated, _ = env.step(action)
        length += 1
        balls = [b.cur_pos[0] + ROW * b.cur_pos[1] for b in env.obstacles] if family == DYNAMIC else [0] * 4
        steps.append(
            {
                **{f"start_{name}": value for name, value in start.items()},
                "fresh": fresh, "before": before, "action": action, "balls": np.array(balls),
                "after": package.observation(family, obs), "reward": np.float32(package.reward(reward)),
                "terminated": terminated, "truncated": truncated,
            }
        )  # fmt: skip
        name_events(seen, action, ahead, hand, was, situation(env), reward, terminated, truncated)
        fresh = terminated or truncated
    seen["steps"] = n_steps
    return steps, seen


def rehearsal(env, rng):
    """How many steps the expert will take to succeed or die."""
    env, rng = copy.deepcopy((env, rng))
    for n in range(1, 100):
        _, _, terminated, truncated, _ = env.step(expert(env, rng))
        if terminated or truncated:
            return n
    return 100


def situation(env):
    """(what is carried, the door's state, whether a box is anywhere)."""
    door = find(env, "door")
    cell = env.grid.get(*door) if door else None
    state = "none" if cell is None else "open" if cell.is_open else "locked" if cell.is_locked else "closed"
    return kind(env.carrying), state, find(env, "box") is not None, tuple(env.agent_pos)


def name_events(seen, action, ahead, hand, was, now, reward, terminated, truncated):
    if action == PICK_UP and hand == "empty" and now[0] != "empty":
        seen[f"took {now[0]}"] += 1
    if action == PICK_UP and hand != "empty" and ahead in ("key", "ball", "box"):
        seen["hands were full"] += 1
    if action == DROP and hand != "empty":
        seen[f"dropped {hand}" if now[0] == "empty" else "no room to drop"] += 1
    if action == FORWARD and hand == "ball" and was[3] != now[3]:
        seen["carried ball"] += 1
    if was[1] != now[1]:
        seen[f"door {was[1]} to {now[1]}"] += 1
    if action == TOGGLE and ahead == "door" and hand == "key" and was == now:
        seen["wrong key"] += 1
    if action == TOGGLE and ahead == "door" and was[1] == "locked" == now[1]:
        seen["door stayed locked" + (" with a thing in hand" if hand != "empty" else "")] += 1
    if action == TOGGLE and was[2] and not now[2]:
        seen["broke box"] += 1
    if action == FORWARD and ahead == "door" and was[3] != now[3]:
        seen["went through door"] += 1
    if terminated:
        seen["solved" if reward > 0 else f"died at {ahead}"] += 1
        if reward < 0 and ahead == "ball":
            seen["ball moved away, died" if was[3] != now[3] else "ball stayed, died"] += 1
    if action == FORWARD and ahead == "empty" and was[3] == now[3] and not terminated:
        seen["ball came in the way"] += 1
    if truncated:
        seen["cut and solved" if terminated and reward > 0 else "cut"] += 1
