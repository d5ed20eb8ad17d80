"""What the students of a MiniG run can do, what their critics say, and which families ProCuRL-Target would then pick.

    python benchmarks/minigrid_values.py runs/minigrid

Both pairings of ProCuRL-Target are asked with the same critics, so the last table shows what the pairing alone does,
seed by seed, at the end of a run. Families are in the order of their distance to the target.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from procurl.evaluate import evaluate

import procurl
from procurl.bench.report.figures import FAMILY_COLOURS
from procurl.bench.report.tables import text_table
from procurl.envs.minigrid.families import FAMILIES
from procurl.envs.minigrid.pool import FAMILY_OF_SEED
from procurl.students.critic import StudentCritic
from procurl.students.policy import unflatten
from procurl.teachers.procurl import learning_potential

NUMBERS = {family.name: k for k, family in enumerate(FAMILIES)}
COLUMNS = list(FAMILY_COLOURS)  # the target first
TRIED = 40  # tasks of each family


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a result folder of the setting minigrid")
    result = procurl.load_result(parser.parse_args().run)
    env, space = procurl.make("minigrid")
    teachers = {pairing: procurl.ProCuRLTarget(space, beta=110.0, pairing=pairing) for pairing in ("pair", "max")}

    rows = np.concatenate([np.flatnonzero(NUMBERS[name] == FAMILY_OF_SEED)[:TRIED] for name in COLUMNS])
    tried = jax.tree.map(lambda x: x[rows], space.pool)

    @jax.jit
    @jax.vmap
    def look(params):
        critic, key = StudentCritic(env, params), jax.random.key(0)
        weights = {}
        for pairing, teacher in teachers.items():
            state = teacher.observe(teacher.init(key), key, None, critic)  # it asks the critic, not the episodes
            weights[pairing] = jax.nn.softmax(teacher.log_weights(state))
        z = learning_potential(critic.value(space.targets), space)
        success = evaluate(env, params, tried, key).success.reshape(len(COLUMNS), TRIED).mean(axis=1)
        return success, critic.value(space.pool), jnp.stack([jnp.median(z), jnp.max(z)], axis=-1), weights

    success, values, z, weights = jax.tree.map(np.asarray, look(unflatten(result.params)))

    def show(title: str, *columns: np.ndarray, more: tuple[str, ...] = ()) -> None:
        rows = np.concatenate([result.seeds[:, None], *columns], axis=1)
        cells = [[f"{row[0]:.0f}", *(f"{x:.3f}" for x in row[1:])] for row in rows]
        print(f"\n{title}\n\n{text_table(['seed', *COLUMNS, *more], cells)}")

    print(f"{result.label}, {result.steps[-1]:,} steps")
    show(f"success on {TRIED} tasks of the pool, return on target", success, result.ret[:, -1:], more=("return",))
    show("mean value in the pool, Z of the targets", by_family(values, np.mean), z, more=("median Z", "largest Z"))
    for pairing, chosen in weights.items():
        show(f"shares that ProCuRL-Target would choose, pairing {pairing}", by_family(chosen, np.sum))


def by_family(x: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """[S, 1000] -> [S, 6]."""
    return np.stack([reduce(x[:, NUMBERS[name] == FAMILY_OF_SEED], axis=1) for name in COLUMNS], axis=1)


if __name__ == "__main__":
    main()
