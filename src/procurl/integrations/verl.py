"""verl: a curriculum in place of its sampler, through the interface that its versions 0.6 and 0.7 have for this.

    data.sampler.class_path=pkg://procurl.integrations.verl data.sampler.class_name=CurriculumSampler
    data.dataloader_num_workers=0 +data.sampler.procurl.strategy=procurl-unif

verl takes a batch from the sampler, has it answered and learnt from, and calls `update` with the results before it
takes the next one. Its driver is one process, so there is one curriculum. It saves the sampler's state together with
its data loader's; but it saves before it calls `update`, so the results of the batch right before a checkpoint are not
in it: a run that is resumed continues without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from procurl.check import numbers
from procurl.errors import CheckpointError, ConfigError, MissingExtraError
from procurl.integrations.prompt_rows import as_pass_rates, rows_by_id
from procurl.prompts import PromptCurriculum

try:
    from omegaconf import OmegaConf
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "procurl.integrations.verl needs a verl with curriculum samplers (verl.experimental.dataset.sampler), which "
        "versions 0.6 and 0.7 have, and 0.8 and later have not; procurl was tried with 0.7.1"
    ) from error

ID = "index"  # what verl's dataset copies from a row's extra_info, and a batch still has when its results are known
SCORES = "token_level_scores"


class CurriculumSampler(AbstractCurriculumSampler):  # type: ignore[misc]  # verl need not be there when types are checked
    """Deals the rows of verl's dataset; every row needs an extra_info["index"] of its own.

    Settings are those of `data.sampler.procurl`: any argument of `PromptCurriculum` (embeddings, also those of targets,
    as paths of .npy files), and `reward`, the name of what the reward function returns besides the score, e.g. acc, if
    the score itself does not lie between 0 (failed) and 1 (passed).
    """

    def __init__(self, data_source: Any, data_config: Any) -> None:
        options = settings(data_config)
        self._reward = options.pop("reward", None)
        ids = ids_of(data_source)
        for name in ("embeddings", "targets"):
            if isinstance(options.get(name), str | Path):
                options[name] = np.load(numbers.path(name, options[name]), allow_pickle=False)
        try:
            self.curriculum = PromptCurriculum(ids, **options)
        except TypeError as error:
            raise ConfigError(f"data.sampler.procurl: {error}; expected arguments of PromptCurriculum") from error
        self._row_of = rows_by_id(self.curriculum, ids, 'extra_info["index"]')
        self._size = int(data_config.get("gen_batch_size", None) or data_config.train_batch_size)
        self._yielded = 0  # rows of this epoch

    def __iter__(self) -> Iterator[int]:
        """As many rows as an epoch has whole batches; a batch is drawn when its first row is asked for."""
        while self._yielded < len(self):
            ids = self.curriculum.batch(self._size)
            self._yielded += self._size
            yield from (self._row_of[one] for one in ids)
        self._yielded = 0

    def __len__(self) -> int:
        return self.curriculum.n // self._size * self._size

    def update(self, batch: Any) -> None:
        """Record the results of a batch, in whatever order its completions come."""
        if ID not in batch.non_tensor_batch:
            raise ConfigError(f"the batch has no '{ID}': procurl needs extra_info['index'] in every row of the data")
        ids = batch.non_tensor_batch[ID].tolist()
        rewards = as_pass_rates(self._rewards(batch), 1, f"the reward '{self._reward or SCORES}'")[:, 0]
        place = {one: k for k, one in enumerate(dict.fromkeys(ids))}
        which = np.array([place[one] for one in ids])
        group = np.bincount(which)
        self.curriculum.record(list(place), rewards=np.bincount(which, weights=rewards) / group, group=group)

    def _rewards(self, batch: Any) -> Any:
        if self._reward is None:
            return batch.batch[SCORES].sum(-1).cpu().numpy()
        if self._reward not in batch.non_tensor_batch:
            raise ConfigError(
                f"data.sampler.procurl.reward={self._reward}: the reward function returned no such number"
            )
        return batch.non_tensor_batch[self._reward].astype(np.float64)

    def state_dict(self) -> dict[str, Any]:
        """verl's data loader saves it in the checkpoint's data.pt."""
        return {"yielded": self._yielded, "curriculum": self.curriculum.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict) or not {"yielded", "curriculum"} <= set(state):
            raise CheckpointError(
                "the data loader's state is not of procurl's CurriculumSampler: another sampler saved it"
            )
        self.curriculum.load_state_dict(state["curriculum"])
        self._yielded = numbers.whole("yielded", state["yielded"], 0)


def settings(data_config: Any) -> dict[str, Any]:
    given = data_config.sampler.get("procurl", None)
    return dict(OmegaConf.to_container(given, resolve=True)) if given is not None else {}


def ids_of(data_source: Any) -> list[Any]:
    """extra_info["index"] of every row."""
    rows = getattr(data_source, "dataframe", data_source)  # verl's own dataset renders a prompt for every row
    found = [(rows[k].get("extra_info") or {}).get(ID) for k in range(len(rows))]
    if any(one is None for one in found):
        raise ConfigError(
            f"row {found.index(None)} of the data has no extra_info['index']: procurl needs one in every row, by which "
            f"it knows the prompt again"
        )
    return found
