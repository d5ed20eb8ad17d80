"""verl's curriculum sampler, against verl 0.7.1 itself: its base class, batches and data loader; a training needs GPUs.

No environment of ours has verl (it asks for NumPy below 2), so these are skipped in all targets;
docs/integrations/trl.md tells how they were run.
"""

from importlib.util import find_spec

import numpy as np
import pytest

from procurl.errors import CheckpointError, ConfigError, MissingExtraError
from procurl.prompts import PromptCurriculum

HAS_VERL = bool(find_spec("verl"))
needs_verl = pytest.mark.skipif(not HAS_VERL, reason="needs verl 0.7.1, which no environment of ours has")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
N, GROUP, BATCH = 20, 4, 6


class Rows:
    """The part of verl's dataset that a sampler and a loader see."""

    def __init__(self, n=N, index=lambda k: 100 + k):
        self.dataframe = [{"extra_info": {"index": index(k)}} for k in range(n)]

    def __len__(self):
        return len(self.dataframe)

    def __getitem__(self, row):
        return {"index": self.dataframe[row]["extra_info"]["index"]}


def config(**options):
    from omegaconf import OmegaConf

    where = {"class_path": "pkg://procurl.integrations.verl", "class_name": "CurriculumSampler"}
    procurl = {"group": GROUP, **options}
    return OmegaConf.create(
        {"train_batch_size": BATCH, "dataloader_num_workers": 0, "sampler": {**where, "procurl": procurl}}
    )


def made(rows=None, **options):
    """By verl's own way to a sampler."""
    from verl.trainer.main_ppo import create_rl_sampler

    return create_rl_sampler(config(**options), Rows() if rows is None else rows)


def loader(sampler):
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(
        dataset=Rows(), batch_size=BATCH, num_workers=0, drop_last=True, sampler=sampler,
        collate_fn=lambda rows: [row["index"] for row in rows],
    )  # fmt: skip


def results(ids, rng, **more):
    """A DataProto as the trainer has it after a step: completions shuffled, scores on their last tokens."""
    import torch
    from verl import DataProto

    order = rng.permutation(len(ids) * GROUP)
    index = np.repeat(ids, GROUP)[order]
    scores = np.zeros((len(index), 5), np.float32)
    scores[:, -1] = rng.random(len(index)) < 0.4
    return DataProto.from_dict(
        tensors={"token_level_scores": torch.tensor(scores)},
        non_tensors={"index": index.astype(object), **{k: f(len(index)) for k, f in more.items()}},
    )


@pytest.mark.skipif(HAS_VERL, reason="verl is installed")
def test_what_is_missing_is_said():
    with pytest.raises(MissingExtraError, match="needs a verl with curriculum samplers"):
        import procurl.integrations.verl  # noqa: F401


@needs_verl
def test_batches_follow_the_results_of_those_before():
    """Two epochs as verl's trainer runs them, and a curriculum by hand that is told the same."""
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler

    sampler, rng = made(), np.random.default_rng(0)
    assert isinstance(sampler, AbstractCurriculumSampler)
    by_hand = PromptCurriculum([100 + k for k in range(N)], group=GROUP)
    for _ in range(2):
        n = 0
        for ids in loader(sampler):
            assert ids == by_hand.batch(BATCH)
            batch = results(ids, rng)
            sampler.update(batch)
            index, scores = batch.non_tensor_batch["index"], batch.batch["token_level_scores"].sum(-1).numpy()
            seen = list(dict.fromkeys(index))
            by_hand.record(seen, passes=[int(scores[index == one].sum()) for one in seen], group=GROUP)
            n += 1
        assert n == N // BATCH
    np.testing.assert_array_equal(sampler.curriculum.pass_rates(), by_hand.pass_rates())


@needs_verl
@pytest.mark.parametrize("taken", [1, 2, 3])
def test_the_loaders_state_resumes_it(taken):
    """Saved where verl saves it, after a batch was learnt from: `update` comes later, and is left out on both sides."""
    first = made()
    before = loader(first)
    batches = iter(before)
    for k in range(taken):
        ids = next(batches)
        if k < taken - 1:
            first.update(results(ids, np.random.default_rng(k)))
    state = before.state_dict()
    again = loader(made())
    again.load_state_dict(state)
    assert list(again) == list(batches)
    assert list(again) == list(before)  # and the next epoch


@needs_verl
def test_embeddings_and_targets_come_from_files(tmp_path):
    """The overrides of docs/integrations/trl.md; targets may be ids as well."""
    x = np.random.default_rng(0).normal(size=(N + 2, 3))
    np.save(tmp_path / "embeddings.npy", x[:N])
    np.save(tmp_path / "benchmark.npy", x[N:])
    where = str(tmp_path / "embeddings.npy")
    of_files = made(embeddings=where, targets=str(tmp_path / "benchmark.npy")).curriculum
    by_hand = PromptCurriculum([100 + k for k in range(N)], x[:N], x[N:], group=GROUP)
    assert of_files.strategy == "procurl-target" and of_files.batch(BATCH) == by_hand.batch(BATCH)
    assert len(made(embeddings=where, targets=[117, 102, 103]).curriculum.target_pass_rates()) == 3


@needs_verl
def test_another_number_of_the_reward_function_tells_what_passed():
    sampler = made(reward="acc")
    ids = next(iter(loader(sampler)))
    sampler.update(results(ids, np.random.default_rng(0), acc=lambda n: np.ones(n, object)))
    assert sampler.curriculum.summary()["recent_pass_rate"] == 1
    with pytest.raises(ConfigError, match="reward=acc: the reward function returned no such number"):
        sampler.update(results(ids, np.random.default_rng(0)))


@needs_verl
def test_what_cannot_work_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="row 0 of the data has no extra_info"):
        made(Rows(index=lambda k: None))
    with pytest.raises(ConfigError, match="the id 0 occurs twice"):
        made(Rows(index=lambda k: 0))
    with pytest.raises(ConfigError, match=r"data.sampler.procurl: .*'windo'"):
        made(windo=3)
    np.save(tmp_path / "e.npy", np.eye(3))
    with pytest.raises(ConfigError, match="embeddings has 3 rows, but there are 20 prompts"):
        made(embeddings=str(tmp_path / "e.npy"))
    sampler = made()
    with pytest.raises(CheckpointError, match="another sampler saved it"):
        sampler.load_state_dict({"yielded": 3})
    batch = results(next(iter(loader(sampler))), np.random.default_rng(0))
    batch.batch["token_level_scores"] -= 1
    with pytest.raises(ConfigError, match="'token_level_scores' gave .* Nothing was recorded"):
        sampler.update(batch)
    assert sampler.curriculum.summary()["records"] == 0
