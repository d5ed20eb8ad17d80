"""Compile a run's iteration for an H200 on a machine without a GPU, and say what its inner loops start.

    python tests/gpu_compile.py SETTING TEACHER SEEDS [PRECISION]

XLA compiles for a GPU that is only described, if JAX's CUDA plugin is installed: see `make test-gpu-programs`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from gpus import an_h200
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding

import procurl
from procurl.programs import kind
from procurl.runs.engine import _programs
from procurl.runs.seeds import PER_SEED, SHARED, Own
from procurl.students import sac_kernels
from procurl.teachers.ranged import ranged

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 149600000000 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H200"
"""


def main(setting: str, name: str, seeds: int, precision: str | None = None) -> None:
    env, space = procurl.make(setting)
    config = procurl.preset(setting)
    if precision:
        config, sac_kernels.ON = replace(config, sac=replace(config.sac, precision=precision)), True
    teacher = ranged(procurl.make_teacher(name, space))
    world = jax.device_put((env, teacher))
    topology = topologies.get_topology_desc("h200", platform="cuda", target_config=H200, topology="1x1x1")
    mesh = Mesh(np.array(topology.devices), ("seeds",))
    jax.default_backend = lambda: "gpu"  # what the library asks before it takes a GPU's way

    def there(tree, spec):
        spread = NamedSharding(mesh, spec)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=spread), tree)

    programs = _programs(config, mesh, kind(world))
    own = Own(jax.eval_shape(lambda: jax.random.split(jax.random.key(0), seeds)), {})
    own, shared, t = there(own, PER_SEED), there(world, SHARED), there(jnp.int32(0), SHARED)
    with an_h200():
        carry = there(programs.begin.eval_shape(own, None, t, shared), PER_SEED)
        lowered = programs.iterate.lower(own, carry, t, shared)
    # The search for the fastest kernels would run them.
    compiled = lowered.compile(compiler_options={"xla_gpu_autotune_level": "0"})
    print(f"{setting} {name} {seeds}: {len(compiled.as_text()):,} characters of HLO")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
