"""A teacher's hyper-parameters by Optuna: short trials, hopeless ones ended early, a study that can be cut.

Choosing by the tasks on which one reports is cheating: trials are judged on validation tasks, drawn anew from the
target distribution, and train with seeds of their own. The held-out tasks stay for the final comparison.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import optuna
from optuna.trial import TrialState

import procurl

SETTING, TEACHER = "point-mass-2g", "procurl-target"
SEEDS = (1000, 1001, 1002, 1003)  # not those of the final comparison, 0 to 24
VALIDATION_KEY, N_VALIDATION = 2024, 50


def suggested(trial: optuna.Trial) -> dict[str, float]:
    """The search: how sharply the teacher prefers, and how far a target's pull reaches."""
    return {
        "beta": trial.suggest_float("beta", 1.0, 1000.0, log=True),
        "length_scale": trial.suggest_float("length_scale", 0.1, 10.0, log=True),
    }


def validation_space(space: procurl.TaskSpace) -> procurl.TaskSpace:
    """The same space with fresh draws of its target distribution in place of the held-out tasks."""
    import jax  # not before `use_cores`

    return dataclasses.replace(space, held_out=space.sample_target(jax.random.key(VALIDATION_KEY), N_VALIDATION))


def objective(trial: optuna.Trial, folder: Path, steps: int, config: procurl.Config, seeds=SEEDS) -> float:
    """Mean return on the validation tasks over training: the area, which is less noisy than the last evaluation."""
    env, space = procurl.make(SETTING)
    values = suggested(trial)
    teacher = procurl.make_teacher(TEACHER, validation_space(space), **values)
    seen: list[float] = []

    def report(progress: procurl.Progress) -> bool:
        seen.append(float(progress.ret.mean()))
        trial.report(float(np.mean(seen)), progress.steps)
        return not trial.should_prune()  # False ends the run

    # The folder is named after what is tried: a trial that was cut finds its checkpoints there.
    name = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:12]
    result = procurl.train(env, teacher, config, seeds=seeds, steps=steps, out=folder / name, callback=report)
    if result.status == "stopped":
        raise optuna.TrialPruned
    return float(result.ret[:, 1:].mean())


def study_in(folder: Path) -> optuna.Study:
    """The study that is kept in a file of the folder; trials that were cut wait to be taken up again."""
    folder.mkdir(parents=True, exist_ok=True)
    file = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
    study = optuna.create_study(
        study_name=TEACHER,
        storage=optuna.storages.JournalStorage(file),
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=100_000),
        load_if_exists=True,
    )
    # With the same seed after a cut, Optuna would draw the first trials once more.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    retried = {trial.user_attrs.get("goes_on_from") for trial in study.trials}
    for cut in study.get_trials(states=[TrialState.RUNNING, TrialState.FAIL]):
        if cut.state == TrialState.RUNNING:  # SIGTERM or worse; after Ctrl-C, Optuna itself says FAIL
            study.tell(cut.number, state=TrialState.FAIL)
        if cut.params and cut.number not in retried:
            study.enqueue_trial(cut.params, user_attrs={"goes_on_from": cut.number})
    return study


def optimise(folder: Path, trials: int, steps: int, config: procurl.Config, seeds=SEEDS) -> optuna.Study:
    """Up to so many trials in all, those of earlier calls included."""
    study = study_in(folder)
    done = study.get_trials(states=[TrialState.COMPLETE, TrialState.PRUNED])
    study.optimize(lambda trial: objective(trial, folder, steps, config, seeds), n_trials=max(0, trials - len(done)))
    return study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--out", type=Path, default=Path("runs/study"))
    args = parser.parse_args()
    procurl.use_cores()
    study = optimise(args.out, args.trials, args.steps, procurl.preset(SETTING))
    print(f"{len(study.trials)} trials; best {study.best_value:.3f} with {study.best_params}")
    options = " ".join(f"--set teacher.{name}={value:.4g}" for name, value in study.best_params.items())
    print("now on the held-out tasks:")
    print(f"procurl train {SETTING} --teacher {TEACHER} {options} --seeds 25 --out runs/best")


if __name__ == "__main__":
    main()
