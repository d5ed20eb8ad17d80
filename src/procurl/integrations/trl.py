"""TRL: a GRPOTrainer whose prompts are chosen by a curriculum.

    curriculum = PromptCurriculum(len(dataset), group=args.num_generations)
    trainer = CurriculumGRPOTrainer(model, is_right, args, train_dataset=dataset, curriculum=curriculum)
    trainer.train()

TRL's data loader fetches rows ahead: with TRL's defaults, the prompts of the next generation are taken from the sampler
before the present ones are even answered. A curriculum in place of the sampler would be a batch behind, and at
every checkpoint would have dealt prompts that were never played. So the loader stays as it is and says how many prompts
are wanted; which ones is decided when they are to be answered. The order of events is that of a hand-written loop,

    batch -> completions -> rewards -> record -> (updates, checkpoint) -> batch ...

for any number of loader workers, updates per generation and processes. Rewards are recorded after TRL has gathered them
from all processes, so that every process records the same; and process 0 has the last word on a batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import CheckpointError, ConfigError, ProcurlError, needs_extra, unknown_name
from procurl.integrations.prompt_rows import as_pass_rates, require_curriculum, rows_by_id
from procurl.prompts import PromptCurriculum

with needs_extra("trl", "procurl.integrations.trl needs {}", "torch", "accelerate", "transformers", "datasets", "trl"):
    import datasets
    import torch
    import trl
    from accelerate.utils import broadcast, gather_object
    from transformers.trainer_utils import get_last_checkpoint

FILE = "procurl_curriculum.npz"  # in every checkpoint-N
TRAINER_STATE = "trainer_state.json"  # of the files it needs to resume, the one the Trainer writes last
# Not part of TRL's public interface, but the same since its version 0.29.
HOOKS = ("_generate_and_score_completions", "_calculate_rewards", "_save_checkpoint")


class CurriculumGRPOTrainer(trl.GRPOTrainer):  # type: ignore[misc]  # TRL need not be there when types are checked
    """GRPO on prompts that a curriculum deals.

    Takes what `trl.GRPOTrainer` takes, and:

    Args:
        curriculum: over the rows of `train_dataset`; made in the same way in every process.
        pass_reward: the name of the reward function that says whether a completion passed, from 0 to 1. Needed only if
            there are several. It may have the weight 0 in `GRPOConfig(reward_weights=...)`.
        id_column: the column with the prompts' ids, if they are not the row numbers.

    The curriculum is saved in every checkpoint, and `train(resume_from_checkpoint=...)` continues with it.
    """

    def __init__(
        self,
        *args: Any,
        curriculum: PromptCurriculum,
        pass_reward: str | None = None,
        id_column: str | None = None,
        **kwargs: Any,
    ) -> None:
        require_hooks()
        self.curriculum = require_curriculum(curriculum)
        super().__init__(*args, **kwargs)
        self._pass_column = pass_column(self.reward_func_names, pass_reward)
        self._row_of = dataset_rows(curriculum, self.train_dataset, id_column)
        self._id_of = list(self._row_of)
        self._dealt: list[Any] | None = None  # prompts whose rewards are still to be recorded
        wanted = self.args.generation_batch_size // self.num_generations
        if wanted > curriculum.n:
            raise ConfigError(
                f"a generation takes {wanted} different prompts (generation_batch_size="
                f"{self.args.generation_batch_size} / num_generations={self.num_generations}), but the dataset "
                f"has {curriculum.n}: make the batch smaller"
            )

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As `GRPOTrainer.train`; on resuming, the curriculum continues as well."""
        if resume_from_checkpoint is True:  # if there is none, the Trainer says so
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        if not isinstance(resume_from_checkpoint, bool | None):
            resume_from_checkpoint = str(resume_from_checkpoint)
            load_curriculum(self.curriculum, Path(resume_from_checkpoint))
        require_alike(self.curriculum)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As `GRPOTrainer.log`; the logs of training tell of the curriculum, too."""
        if "loss" in logs:
            found = self.curriculum.summary()  # NaN for what is missing, such as targets
            logs = {**logs, **{f"curriculum/{name}": x for name, x in found.items() if math.isfinite(x)}}
        super().log(logs, *args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[Mapping[str, Any]]) -> Any:
        """Answer prompts of the curriculum's choice in place of those that the loader brought."""
        if not self.model.training:  # an evaluation, on a dataset of its own
            return super()._generate_and_score_completions(inputs)
        self._dealt, rows = self._deal(len(inputs))
        columns = list(inputs[0])
        outcome = super()._generate_and_score_completions(
            [{name: row[name] for name in columns} for row in map(self.train_dataset.__getitem__, rows)]
        )
        if self._dealt is not None:
            raise ProcurlError(f"TRL {trl.__version__} computed no rewards where procurl expects it: {other_version()}")
        return outcome

    def _deal(self, n_here: int) -> tuple[list[Any], list[int]]:
        """The ids of the next generation, and the rows that are this process's share of it.

        TRL wants the completions of a prompt side by side, dealt out to the processes in equal pieces.
        """
        group = self.num_generations
        ids = self.curriculum.batch(n_here * self.accelerator.num_processes // group)
        # Processors of different kinds may round differently, and a draw may then differ: process 0 decides.
        drawn = torch.tensor([self._row_of[one] for one in ids], device=self.accelerator.device)
        rows = broadcast(drawn, from_process=0).tolist()
        first = self.accelerator.process_index * n_here
        return [self._id_of[row] for row in rows], np.repeat(rows, group)[first : first + n_here].tolist()

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        """Rewards f32[completions of all processes, reward functions], from which the pass rates are recorded."""
        rewards = super()._calculate_rewards(*args, **kwargs)
        if self._dealt is not None:
            source = f"the reward function '{self.reward_func_names[self._pass_column]}'"
            passed = as_pass_rates(rewards[:, self._pass_column].cpu().numpy(), self.num_generations, source)
            ids, self._dealt = self._dealt, None
            self.curriculum.record(ids, rewards=passed)
        return rewards

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The curriculum first, so that every checkpoint that the Trainer has completed has one."""
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            self.curriculum.save(folder / FILE)
        super()._save_checkpoint(model, trial)


def require_hooks() -> None:
    missing = [name for name in HOOKS if not hasattr(trl.GRPOTrainer, name)]
    if missing:
        raise ProcurlError(f"the GRPOTrainer of TRL {trl.__version__} has no {missing[0]}: {other_version()}")


def other_version() -> str:
    return "this version is not supported. procurl was tested with TRL 1.0 and 1.16"


def pass_column(names: list[str], wanted: str | None) -> int:
    """The number of the reward function that tells what passed."""
    if wanted is None and len(names) == 1:
        return 0
    if wanted is None:
        raise ConfigError(
            f"there are {len(names)} reward functions: {', '.join(names)}. Say with pass_reward= which of them tells "
            f"from 0 to 1 whether a completion passed, e.g. pass_reward={names[0]!r}"
        )
    if names.count(wanted) > 1:
        raise ConfigError(f"pass_reward={wanted!r}: several reward functions have this name; give them different ones")
    if wanted not in names:
        raise unknown_name("pass_reward", wanted, names)
    return names.index(wanted)


def dataset_rows(curriculum: PromptCurriculum, dataset: Any, id_column: str | None) -> dict[Any, int]:
    if not isinstance(dataset, datasets.Dataset):
        raise ConfigError(
            f"train_dataset is a {type(dataset).__name__}: a curriculum goes back to prompts, which a stream cannot "
            f"do. Give a datasets.Dataset"
        )
    if id_column is None:
        return rows_by_id(curriculum, range(len(dataset)), "the dataset's row numbers (no id_column was given)")
    if id_column not in dataset.column_names:
        raise unknown_name("id_column", id_column, dataset.column_names)
    return rows_by_id(curriculum, list(dataset[id_column]), f"the column '{id_column}'")


def load_curriculum(curriculum: PromptCurriculum, checkpoint: Path) -> None:
    for name, what in ((FILE, "of a curriculum"), (TRAINER_STATE, "of the trainer")):
        if not (checkpoint / name).is_file():
            raise CheckpointError(
                f"{checkpoint} has no state {what} ({name}): training was stopped while it was written, or it was "
                f"saved by something else. Resume from an earlier checkpoint, or remove this one"
            )
    curriculum.load(checkpoint / FILE)


def require_alike(curriculum: PromptCurriculum) -> None:
    """All processes must begin with the same curriculum, settings and records."""
    digest = hashlib.sha256()
    for name, value in sorted(curriculum.state_dict().items()):
        digest.update(
            f"{name} ".encode() + (value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        )
    found = gather_object([digest.hexdigest()])
    different = [rank for rank, one in enumerate(found) if one != found[0]]
    if different:
        raise ConfigError(
            f"process {different[0]} has another curriculum than process 0: make it in every process from the same "
            f"prompts, embeddings (computed once, and read by all), settings and seed"
        )
