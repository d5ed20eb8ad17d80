"""A short real training for `procurl doctor`: whole, cut off, and resumed.

    python -m procurl.cli.selftest probe
    python -m procurl.cli.selftest train cpu FOLDER [--cut]

Each runs in a process of its own and prints one line of JSON: a crashing driver or a missing library then ends that
process, and the doctor reports it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from procurl.cli.installation import Line

TIMEOUT = 300  # seconds, of one process
SETTING, TEACHER, SEEDS, ITERATIONS, CUT_AT = "point-mass-1t", "procurl-unif", 2, 6, 2
CUT_STATUS = 70  # of the process that ends itself in the middle of its run


# --- the doctor's side ------------------------------------------------------------------------------------------------


def self_test(device: str) -> Iterator[Line]:
    """Train whole; train, be cut off, and resume: both must end the same."""
    section, began = f"Self-test on {device}", time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="procurl-doctor-") as home:
        cache = {"JAX_COMPILATION_CACHE_DIR": f"{home}/cache", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        cache["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        whole, error = child("train", device, f"{home}/whole", environment=cache)
        if whole is None or not whole["finite"]:
            yield Line(section, "training", "problem", error if whole is None else "returns are not finite")
            return
        yield Line(
            section, "training", "ok",
            f"{whole['steps']:,} steps with 2 seeds, evaluated and read back; {whole['steps_per_second']:,.0f} "
            f"steps/s, compiled in {whole['compile_seconds']:.0f} s",
        )  # fmt: skip
        _, error = child("train", device, f"{home}/cut", "--cut", expected=CUT_STATUS, environment=cache)
        if error:
            yield Line(section, "checkpoint", "problem", f"the run that is to be cut off ended otherwise: {error}")
            return
        resumed, error = child("train", device, f"{home}/cut", environment=cache)
        if resumed is None:
            yield Line(section, "resuming", "problem", error)
            return
        yield resumed_line(section, device, whole, resumed)
        works = resumed["cache_hits"] > 0
        yield Line(
            section, "compilation cache", "ok" if works else "note",
            f"{resumed['cache_hits']} programs came from it" if works else "nothing came from it: every start compiles",
        )  # fmt: skip
    yield Line(section, "time", "ok", f"{time.perf_counter() - began:.0f} s")


def resumed_line(section: str, device: str, whole: dict[str, Any], resumed: dict[str, Any]) -> Line:
    if not resumed["resumed_at"]:
        return Line(section, "resuming", "problem", "the run that was cut off began anew: its checkpoint was not found")
    after = f"cut off, resumed after {resumed['resumed_at'][-1]:,} steps"
    if resumed["digest"] == whole["digest"]:
        return Line(section, "resuming", "ok", f"{after}: bitwise as if it had not been")
    if device == "gpu":
        return Line(section, "resuming", "note", f"{after}: not bitwise the same, which is promised for CPUs only")
    return Line(section, "resuming", "problem", f"{after}: the result differs from an uninterrupted run")


def child(
    *args: str, environment: Mapping[str, str] | None = None, expected: int = 0
) -> tuple[dict[str, Any] | None, str]:
    """(what a process of the self-test printed, "") or (None, what went wrong)."""
    command = [sys.executable, "-m", "procurl.cli.selftest", *args]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **(environment or {})}
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {TIMEOUT} s"
    if done.returncode != expected:
        last = [line.strip() for line in done.stderr.strip().splitlines() if line.strip()]
        return None, f"exit status {done.returncode}: {last[-1] if last else 'without a word'}"
    if expected != 0:
        return None, ""
    try:
        outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None, f"an answer that is not understood: {done.stdout[-200:]!r}"
    return outcome, ""


# --- the processes ----------------------------------------------------------------------------------------------------


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
