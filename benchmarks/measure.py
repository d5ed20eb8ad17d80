"""What the speed benchmarks share: a machine in words, the arithmetic of a training step, the rate of a device."""

from __future__ import annotations

import itertools
import statistics
import time
from importlib import metadata
from typing import Any


def machine_line(*packages: str) -> str:
    """Hardware and versions, those of further packages too."""
    from procurl.runs.provenance import software_and_hardware

    m = software_and_hardware()
    devices = ", ".join(f"{m['devices'].count(d)} x {d}" for d in dict.fromkeys(m["devices"]))
    further = "".join(f"{package} {metadata.version(package)}, " for package in packages)
    return (
        f"{m['processor']}, {devices}; Python {m['python']}, jax {m['jax']}, numpy {m['numpy']}, {further}"
        f"procurl {m['procurl']} at {(m['commit'] or 'a release')[:12]}, {time.strftime('%Y-%m-%d')}"
    )


def operations_per_step(env: Any, config: Any) -> float:
    """Floating-point operations that the networks cost per environment step: products alone, two a multiply-add.

    Playing asks policy and critic once, and learning asks the old policy for its probabilities; then every epoch takes
    a forward and a backward pass. A backward pass is two products of the size of each forward one, and one for the
    first layer, whose inputs need no gradient.
    """
    trunk, policy, value, first = _products(env, config.ppo)
    learning = config.ppo.epochs * (3 * (trunk + policy + value) - first)
    return 2.0 * ((trunk + policy) + (trunk + value) + (trunk + policy) + learning)


def operations_of_critic(env: Any, config: Any) -> float:
    """The same of one value."""
    trunk, _, value, _ = _products(env, config.ppo)
    return 2.0 * (trunk + value)


def _products(env: Any, ppo: Any) -> tuple[int, int, int, int]:
    """Multiply-adds for one observation: shared layers, policy's own, value's own; of them, the first layers'."""

    def layers(*widths: int) -> int:
        return sum(n_in * n_out for n_in, n_out in itertools.pairwise(widths))

    start = ppo.shared[-1] if ppo.shared else env.obs_size
    policy, value = (start, *ppo.separate, env.action.size), (start, *ppo.separate, 1)
    first = env.obs_size * (ppo.shared[0] if ppo.shared else policy[1] + value[1])
    return layers(env.obs_size, *ppo.shared), layers(*policy), layers(*value), first


def product_rate(size: int = 2048, repeats: int = 5) -> float:
    """Operations per second of a large float32 product on one device, at full precision."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST))
    jax.block_until_ready(product(a, a))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(product(a, a))
        seconds.append(time.perf_counter() - began)
    return 2.0 * size**3 / min(seconds)


def iteration_seconds(engine: Any, iterations: int) -> tuple[float, float]:
    """(seconds up to the end of the first iteration, median seconds of the later ones)."""
    import jax

    began = time.perf_counter()
    carry, _ = engine.iterate(engine.begin(), 0)
    jax.block_until_ready(carry)
    compiled = time.perf_counter() - began
    seconds = []
    for t in range(1, iterations + 1):
        began = time.perf_counter()
        carry, _ = engine.iterate(carry, t)
        jax.block_until_ready(carry)
        seconds.append(time.perf_counter() - began)
    return compiled, statistics.median(seconds)
