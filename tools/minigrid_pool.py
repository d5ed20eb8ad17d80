"""Make the training pool of the setting `minigrid`: the public package's first states for seeds 0 .. 999.

pip install "procurl[minigrid]"
python tools/minigrid_pool.py                 # writes src/procurl/envs/minigrid/pool.npz
python tools/minigrid_pool.py --check         # compares with the file that is there, writes nothing
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import version

import numpy as np

from procurl.envs.minigrid import package, pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file that is there")
    states = first_states()
    if parser.parse_args().check:
        kept = pool.first_states()
        same = all(np.array_equal(kept[name], rows) for name, rows in states.items())
        print(f"{pool.FILE.name}: {'the same' if same else 'NOT the same'} as minigrid {version('minigrid')} gives")
        sys.exit(not same)
    provenance = {
        "what": "first states of the six MiniG families for seeds 0..999, fields of procurl.envs.minigrid.grid.State",
        "script": "tools/minigrid_pool.py",
        "date": time.strftime("%Y-%m-%d"),
        "minigrid": version("minigrid"),
        "gymnasium": version("gymnasium"),
        "numpy": np.__version__,
    }
    compact = {name: rows.astype(np.int16) for name, rows in states.items()}
    np.savez_compressed(pool.FILE, provenance=np.array(json.dumps(provenance)), **compact)
    print(f"wrote {pool.FILE} ({pool.FILE.stat().st_size:,} bytes)")


def first_states() -> dict[str, np.ndarray]:
    """Row i = task i: its family, reset with seed i."""
    envs = {family: package.make(family) for family, _ in pool.SHARES}
    rows = []
    for seed, family in enumerate(pool.FAMILY_OF_SEED):
        envs[family].reset(seed=seed)
        rows.append(package.state_arrays(int(family), envs[family]))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


if __name__ == "__main__":
    main()
