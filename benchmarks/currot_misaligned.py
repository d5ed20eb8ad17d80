"""Does the released code's mistake explain why CURROT is behind in the paper and ahead here?

    python benchmarks/currot_misaligned.py --setting point-mass-2g --seeds 50 --steps 2M

There, the return of an episode is stored with the context of the *next* episode in the same environment, which the
automatic reset has already put in its place. This trains CURROT as it is and with that mistake, on the same seeds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import procurl
from procurl.cli.common import seed_range, step_count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="point-mass-2g")
    parser.add_argument("--seeds", type=seed_range, default=range(50))
    parser.add_argument("--steps", type=step_count, default=2_000_000)
    parser.add_argument("--device", choices=["cpu", "gpu"])
    args = parser.parse_args()
    procurl.use_cores(device=args.device)
    from measure import machine_line

    from procurl.bench.stats import area_under_curve, bootstrap_difference, mean_and_error, with_error

    env, space = procurl.make(args.setting)
    sound = procurl.make_teacher("currot", space)
    results = {}
    for name, teacher in (("own context", sound), ("next context", misaligned(sound))):
        result = procurl.train(env, teacher, procurl.preset(args.setting), seeds=args.seeds, steps=args.steps)
        results[name] = result
        final = with_error(*mean_and_error(result.ret[:, -1]))
        area = with_error(*mean_and_error(area_under_curve(result.steps, result.ret)))
        print(f"{args.setting}, {name}: final {final}, mean over training {area}", flush=True)
    low, high = bootstrap_difference(*(r.ret[:, -1] for r in results.values()))
    print(f"the mistake costs [{low:+.3f}, {high:+.3f}] of the final return (95 %)\n{machine_line()}")


def misaligned(currot: procurl.CURROT) -> procurl.CURROT:
    """CURROT that takes every return for that of the episode which follows."""
    import dataclasses

    import jax.numpy as jnp

    from procurl.programs import pytree

    @pytree
    @dataclass(frozen=True, eq=False)
    class Misaligned(procurl.CURROT):
        def observe(self, state, key, episodes, critic):  # type: ignore[no-untyped-def]
            # Whenever an episode ends, the next proposal of the queue begins in its place: the k-th that ends is
            # followed by the k-th that begins. (Which of those that end in one iteration comes first does not matter:
            # what begins is drawn independently of what ends.)
            beginning = jnp.argsort(~episodes.started, stable=True)
            order = jnp.cumsum(episodes.finished) - 1
            context = episodes.task.context[beginning[jnp.maximum(order, 0)]]
            task = episodes.task._replace(context=jnp.where(episodes.finished[:, None], context, episodes.task.context))
            return super().observe(state, key, episodes._replace(task=task), critic)

    return Misaligned(**{f.name: getattr(currot, f.name) for f in dataclasses.fields(currot)})


if __name__ == "__main__":
    main()
