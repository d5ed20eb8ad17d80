"""What the critics of a MiniG run say, and which families ProCuRL-Target would pick with them, by either pairing.

    python benchmarks/minigrid_values.py runs/minigrid

Both pairings see the same critics, so this shows what the pairing alone does, seed by seed, at the end of a run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import procurl
from procurl.bench.figures import FAMILY_COLOURS
from procurl.bench.tables import text_table
from procurl.envs.minigrid.families import FAMILIES
from procurl.envs.minigrid.pool import FAMILY_OF_SEED
from procurl.policy import unflatten
from procurl.students.critic import StudentCritic
from procurl.teachers.procurl import learning_potential

NUMBERS = {family.name: k for k, family in enumerate(FAMILIES)}
COLUMNS = list(FAMILY_COLOURS)  # the target first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a result folder of the setting minigrid")
    result = procurl.load_result(parser.parse_args().run)
    env, space = procurl.make("minigrid")
    teachers = {pairing: procurl.ProCuRLTarget(space, beta=110.0, pairing=pairing) for pairing in ("pair", "max")}

    @jax.jit
    @jax.vmap
    def look(params):
        critic, key = StudentCritic(env, params), jax.random.key(0)
        weights = {}
        for pairing, teacher in teachers.items():
            state = teacher.observe(teacher.init(key), key, None, critic)  # it asks the critic, not the episodes
            weights[pairing] = jax.nn.softmax(teacher.log_weights(state))
        z = learning_potential(critic.value(space.targets), space)
        return critic.value(space.pool), (jnp.median(z), jnp.max(z)), weights

    values, (z_median, z_max), weights = jax.tree.map(np.asarray, look(unflatten(result.params)))
    rows = []
    for k, seed in enumerate(result.seeds):
        row = [f"{seed}", f"{result.ret[k, -1]:.2f}", *by_family(np.mean, values[k])]
        row += [f"{z_median[k]:.3f}", f"{z_max[k]:.3f}"]
        rows.append(row + [" ".join(by_family(np.sum, weights[pairing][k])) for pairing in teachers])
    head = ["seed", "return", *[f"V({name})" for name in COLUMNS], "Z of targets: median", "largest"]
    print(text_table([*head, *[f"shares, {pairing}" for pairing in teachers]], rows))
    print(f"\nshares of {', '.join(COLUMNS)}")


def by_family(reduce, x: np.ndarray) -> list[str]:
    return [f"{reduce(x[NUMBERS[name] == FAMILY_OF_SEED]):.2f}" for name in COLUMNS]


if __name__ == "__main__":
    main()
