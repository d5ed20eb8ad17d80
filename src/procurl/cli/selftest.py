"""A short real training for `procurl doctor`, in processes of its own: whole, cut off, and resumed.

    python -m procurl.cli.selftest probe
    python -m procurl.cli.selftest train cpu FOLDER [--cut]

Each prints one line of JSON. A crash of a driver or a missing library then ends a child, not the doctor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

SETTING, TEACHER, SEEDS, ITERATIONS, CUT_AT = "point-mass-1t", "procurl-unif", 2, 6, 2
CUT_STATUS = 70  # of the process that ends itself in the middle of its run


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m procurl.cli.selftest")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("probe")
    train = commands.add_parser("train")
    train.add_argument("device", choices=["cpu", "gpu"])
    train.add_argument("folder", type=Path)
    train.add_argument("--cut", action="store_true")
    args = parser.parse_args(argv)
    outcome = probe() if args.command == "probe" else train_once(args.device, args.folder, args.cut)
    print(json.dumps(outcome))


def probe() -> dict[str, Any]:
    """What JAX makes of this machine."""
    import jax

    config: Any = jax.config
    first: Any = jax.tree.structure(_registered())
    return {
        "backend": jax.default_backend(),
        "devices": [{"platform": d.platform, "kind": d.device_kind} for d in jax.local_devices()],
        "float64": bool(config.jax_enable_x64),
        "matmul_precision": config.jax_default_matmul_precision,
        "prng": str(config.jax_default_prng_impl),
        "without_jit": bool(config.jax_disable_jit),
        "cache": config.jax_compilation_cache_dir,
        "mixes_classes": first == jax.tree.structure(_registered()),
    }


def _registered() -> Any:
    """An object of a new class of JAX's own registration."""
    import dataclasses

    import jax

    return jax.tree_util.register_dataclass(dataclasses.make_dataclass("Node", ["leaf"]))(0.0)


def train_once(device: str, folder: Path, cut: bool) -> dict[str, Any]:
    """Train, or go on with what is in the folder, and read the result back; with `cut`, end without a warning."""
    from procurl.devices import use_cores

    use_cores(2, device=device)
    import jax

    import procurl
    from procurl import PPO, Config

    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    env, space = procurl.make(SETTING)
    teacher = procurl.make_teacher(TEACHER, space)
    config = Config(
        PPO(n_steps=512, n_envs=8, batch_size=128, epochs=2, shared=(16,), separate=(16,)), evaluate_every=1
    )

    def end_here(progress: procurl.Progress) -> None:
        if cut and progress.steps > CUT_AT * config.ppo.n_steps:
            os._exit(CUT_STATUS)  # as a power cut: nothing is tidied up

    procurl.train(
        env, teacher, config, seeds=SEEDS, steps=ITERATIONS * config.ppo.n_steps, out=folder, save_share=1.0,
        callback=end_here,
    )  # fmt: skip
    result = procurl.load_result(folder)
    task = jax.tree.map(lambda x: x[0], space.held_out)
    action = procurl.load_policy(folder).predict(env.reset(task)[1], deterministic=True)
    return {
        "digest": _digest(
            {"ret": result.task_ret, "success": result.task_success, "action": action, **result.trace, **result.params}
        ),
        "finite": bool(all(abs(x) < 1e30 for x in result.ret.ravel())),  # false for NaN too
        "steps": int(result.steps[-1]),
        "resumed_at": result.timing["resumed_at_steps"],
        "compile_seconds": result.timing["compile_seconds"],
        "steps_per_second": result.timing["steps_per_second"],
        "cache_hits": sum(event.endswith("/cache_hits") for event in events),
    }


def _digest(arrays: dict[str, Any]) -> str:
    import numpy as np

    sha = hashlib.sha256()
    for name in sorted(arrays):  # safetensors come in any order
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return sha.hexdigest()


if __name__ == "__main__":
    main()
