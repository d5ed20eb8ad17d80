"""Short runs of every strategy on every setting, as digests: two checkouts of procurl compute the same if these agree.

    PYTHONPATH=before/src python tools/same_bits.py before.json [--jobs 2] [--only minigrid]
    PYTHONPATH=after/src python tools/same_bits.py after.json
    python tools/same_bits.py --compare before.json after.json

Arrays that only one of them records are named, and not compared. Uses public names alone, so that it runs with any
version. On one machine only: another processor rounds differently.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import subprocess
import sys
from pathlib import Path

FEWER = {"currot": {"n_particles": 40, "n_candidates": 20, "update_after": 2}, "gradient": {"n_particles": 40}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="settings whose names contain this")
    parser.add_argument("--one", nargs=2, metavar=("SETTING", "TEACHER"), help="print one digest")
    args = parser.parse_args()
    if args.compare:
        sys.exit(compare(*args.compare))
    if args.one:
        print(digest(*args.one))
        return
    args.out.write_text(json.dumps(digests(args.jobs, args.only), indent=1))


def digests(jobs: int, only: str) -> dict[str, str]:
    from procurl import presets

    pairs = [(s, t) for s in presets.SETTINGS if only in s for t in presets.TEACHERS]

    def in_a_process(pair: tuple[str, str]) -> str:
        done = subprocess.run([sys.executable, __file__, "--one", *pair], capture_output=True, text=True)
        answer = done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr[-500:]}"
        print(*pair, answer[:12], flush=True)
        return answer

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return {" ".join(pair): answer for pair, answer in zip(pairs, pool.map(in_a_process, pairs), strict=True)}


def digest(setting: str, name: str) -> str:
    """Of each array of a run of three iterations with three seeds on two devices."""
    import procurl

    procurl.use_cores(2, device="cpu")
    import jax
    import numpy as np

    ppo = procurl.PPO(n_steps=256, n_envs=8, batch_size=64, epochs=2, shared=(16,), separate=(16,))
    sac = procurl.SAC(
        hidden=(16, 16), batch_size=32, n_steps=200, n_envs=4, capacity=2000, start_steps=200, first_fit=200,
        fit_every=200,
    )  # fmt: skip
    walks = setting == "bipedal"
    env, space = procurl.make(setting, **({"max_steps": 60} if walks else {}))
    if walks:
        space = dataclasses.replace(space, held_out=jax.tree.map(lambda x: x[:3], space.held_out))
    config = procurl.Config(sac=sac, evaluate_every=2) if walks else procurl.Config(ppo=ppo, evaluate_every=2)
    teacher = procurl.make_teacher(name, space, **FEWER.get(name, {}))
    seeds = 1 if walks else 3
    result = procurl.train(env, teacher, config, seeds=seeds, steps=3 * config.student.n_steps)
    arrays = {"ret": result.task_ret, "success": result.task_success, **result.trace, **result.params}
    digests = {
        key: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16] for key, array in arrays.items()
    }
    return json.dumps(digests)


def compare(first: Path, second: Path) -> int:
    before, after = (json.loads(path.read_text()) for path in (first, second))
    others, unmatched = [], set()
    for key in before | after:
        if not all(text.get(key, "missing").startswith("{") for text in (before, after)):
            others.append(key)
            print(f"{key}: {before.get(key, 'missing')[:60]} and {after.get(key, 'missing')[:60]}")
            continue
        one, other = json.loads(before[key]), json.loads(after[key])
        unmatched |= one.keys() ^ other.keys()
        if differing := [name for name in one.keys() & other.keys() if one[name] != other[name]]:
            others.append(key)
            print(f"{key}: {', '.join(sorted(differing))}")
    if unmatched:
        print(f"in one of them only: {', '.join(sorted(unmatched))}")
    print(f"{len(before | after) - len(others)} of {len(before | after)} runs are the same to the last bit")
    return int(bool(others))


if __name__ == "__main__":
    main()
