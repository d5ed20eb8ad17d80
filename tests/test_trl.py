"""TRL's GRPOTrainer with a curriculum: real steps of a tiny model, in one process and two. `make test-trl` runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import trl_run

from procurl.errors import CheckpointError, ConfigError, MissingExtraError
from procurl.prompts import PromptCurriculum

ROOT = Path(__file__).parent.parent
STEPS = 6
LETTERS = "abcdefghijklmnopqrstuvwx"
needs_trl = pytest.mark.skipif(not find_spec("trl"), reason="needs procurl[trl]: make test-trl installs it")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and transformers announce much


def launch(folder, name, *words, processes=1, steps=STEPS):
    program = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    done = subprocess.run(
        [sys.executable, *program, str(ROOT / "tests/trl_run.py"), str(folder), name, str(steps), *map(str, words)],
        capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def reports(folder, name, processes=1):
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(processes)]


def states(folder, name, processes=1):
    return [(folder / f"{name}-{rank}.npz").read_bytes() for rank in range(processes)]


def train(folder, name, *words, processes=1, steps=STEPS):
    status, said = launch(folder, name, *words, processes=processes, steps=steps)
    assert status == 0, said
    return reports(folder, name, processes)


def batches(report):
    return [event[1] for event in report["events"] if event[0] == "batch"]


def by_hand(events, n_batches):
    """A loop without TRL that is told the same results deals the same batches."""
    curriculum = PromptCurriculum(trl_run.dataset()["name"][:], group=trl_run.GROUP, seed=3)
    records = [event[1:] for event in events if event[0] == "record"]
    found = []
    for ids, rewards in records[:n_batches]:
        found.append(curriculum.batch(len(ids)))
        curriculum.record(ids, rewards=np.array(rewards))
    return found, curriculum


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two processes, six steps, undisturbed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(folder, "whole", processes=2)


# --- without TRL


@pytest.mark.skipif(bool(find_spec("trl")), reason="TRL is installed")
def test_what_is_missing_is_said():
    with pytest.raises(MissingExtraError, match=r"procurl.integrations.trl needs \w+: pip install 'procurl\[trl\]'"):
        import procurl.integrations.trl  # noqa: F401


# --- several processes


@needs_trl
@pytest.mark.slow
def test_two_processes_have_one_curriculum(whole):
    folder, ranks = whole
    assert batches(ranks[0]) == batches(ranks[1]) and len(batches(ranks[0])) == STEPS
    one, other = states(folder, "whole", 2)
    assert one == other
    assert ranks[0]["weights"] == ranks[1]["weights"]


@needs_trl
@pytest.mark.slow
def test_every_completion_of_every_process_is_recorded_once(whole):
    _, ranks = whole
    for event in range(0, 3 * STEPS, 3):
        (what, dealt), *_ = (rank["events"][event] for rank in ranks)
        assert what == "batch"
        played = [rank["events"][event + 1] for rank in ranks]
        assert [e[0] for e in played] == ["rewards", "rewards"]
        assert played[0][1] + played[1][1] == np.repeat(dealt, trl_run.GROUP).tolist()
        for rank in ranks:
            what, ids, rewards = rank["events"][event + 2]
            assert what == "record" and ids == dealt
            assert np.ravel(rewards).tolist() == played[0][2] + played[1][2]
    assert len(ranks[0]["events"]) == 3 * STEPS


@needs_trl
@pytest.mark.slow
def test_a_batch_is_dealt_after_the_results_of_the_one_before(whole):
    folder, ranks = whole
    found, curriculum = by_hand(ranks[0]["events"], STEPS)
    assert found == batches(ranks[0])
    assert curriculum.save(folder / "by-hand.npz").read_bytes() == states(folder, "whole")[0]


@needs_trl
@pytest.mark.slow
def test_the_log_tells_of_the_curriculum(whole):
    _, ranks = whole
    assert [row["curriculum/records"] for row in ranks[0]["logs"]] == list(range(1, STEPS + 1))
    assert all(np.isfinite(x) for row in ranks[0]["logs"] for name, x in row.items() if name.startswith("curriculum/"))


@needs_trl
@pytest.mark.slow
def test_killed_and_resumed_is_as_if_nothing_had_been(whole, tmp_path):
    """Killed in the fourth generation, with checkpoints after every second step; then in the midst of a checkpoint."""
    folder, ranks = whole
    assert launch(tmp_path, "killed", "kill", 4, processes=2)[0] != 0
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    assert launch(tmp_path, "killed", "resume", "kill-in-save", 1, processes=2)[0] != 0
    status, said = launch(tmp_path, "refused", "resume", processes=2)
    assert status != 0 and "checkpoint-4 has no state of the trainer (trainer_state.json)" in said
    shutil.rmtree(tmp_path / "checkpoint-4")
    resumed = train(tmp_path, "resumed", "resume", processes=2)
    for before, after in zip(ranks, resumed, strict=True):
        assert after["events"] == before["events"][3 * 2 :]
        assert after["weights"] == before["weights"]
    assert states(tmp_path, "resumed", 2) == states(folder, "whole", 2)


@needs_trl
@pytest.mark.slow
def test_groups_that_lie_across_processes(tmp_path):
    """Two processes with six completions each are three groups of four."""
    words = ("per_device_train_batch_size", 2, "gradient_accumulation_steps", 3)
    ranks = train(tmp_path, "across", *words, processes=2, steps=2)
    (dealt, *_), played = batches(ranks[0]), [rank["events"][1] for rank in ranks]
    assert len(dealt) == 3 and len(played[0][1]) == 6
    assert played[0][1] + played[1][1] == np.repeat(dealt, trl_run.GROUP).tolist()
    assert np.ravel(ranks[1]["events"][2][2]).tolist() == played[0][2] + played[1][2]


@needs_trl
@pytest.mark.slow
def test_all_processes_play_what_the_first_one_drew(tmp_path):
    ranks = train(tmp_path, "unlike", "unlike", processes=2, steps=2)
    dealt, other = (batches(rank)[0] for rank in ranks)
    assert other == dealt[::-1]
    played = [rank["events"][1] for rank in ranks]
    assert played[0][1] + played[1][1] == np.repeat(dealt, trl_run.GROUP).tolist()
    assert ranks[0]["events"][2] == ranks[1]["events"][2] and ranks[0]["events"][2][1] == dealt


@needs_trl
@pytest.mark.slow
def test_processes_with_different_curricula_are_refused(tmp_path):
    status, said = launch(tmp_path, "different", "seed-by-rank", processes=2)
    assert status != 0 and "process 1 has another curriculum than process 0" in said


# --- one process: how TRL reuses completions and reads ahead


@needs_trl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "generations"),
    [
        (("num_iterations", 2), 3),  # every completion is learnt from twice
        (("steps_per_generation", 8), 3),  # prompts for two updates at a time
        (("dataloader_num_workers", 2), 6),  # rows are fetched by others, far ahead
    ],
)
def test_reading_ahead_and_reuse_change_nothing(tmp_path, words, generations):
    (report,) = train(tmp_path, "run", *words)
    assert [event[0] for event in report["events"]] == ["batch", "rewards", "record"] * generations
    assert by_hand(report["events"], generations)[0] == batches(report)


@needs_trl
@pytest.mark.slow
def test_resumed_between_two_updates_of_a_generation(tmp_path):
    """TRL forgets the completions then and generates anew, so the curriculum deals anew; nothing is counted twice."""
    reuse = ("steps_per_generation", 16, "save_steps", 1)
    train(tmp_path, "begun", *reuse, steps=3)
    (resumed,) = train(tmp_path, "resumed", *reuse, "resume", steps=5)
    assert [event[0] for event in resumed["events"]] == ["batch", "rewards", "record"]
    with np.load(tmp_path / "resumed-0.npz", allow_pickle=False) as state:
        assert (state["batches"], state["time"]) == (2, 2)


# --- one process, here: what is refused, and what is left alone


def trainer(folder, curriculum=None, rewards=trl_run.is_right, rows=None, config=None, **options):
    from procurl.integrations.trl import CurriculumGRPOTrainer

    rows = trl_run.dataset() if rows is None else rows
    curriculum = PromptCurriculum(24, group=trl_run.GROUP) if curriculum is None else curriculum
    return CurriculumGRPOTrainer(
        trl_run.model(), rewards, trl_run.arguments(folder, 1, **(config or {})), train_dataset=rows,
        processing_class=trl_run.tokenizer(), curriculum=curriculum, **options,
    )  # fmt: skip


def is_short(completions, **_):
    return [-float(len(text)) for text in completions]


@needs_trl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curriculum": 24}, "curriculum is a int; expected a procurl.prompts.PromptCurriculum"),
        ({"curriculum": lambda: PromptCurriculum(23)}, "the dataset has 24 rows and the curriculum 23 prompts"),
        ({"curriculum": lambda: PromptCurriculum([*LETTERS])}, "row numbers .no id_column.*unknown id"),
        ({"id_column": "nam"}, "unknown id_column 'nam'. Did you mean name"),
        ({"id_column": "answer"}, "the column 'answer' and the curriculum's ids differ"),
        ({"rewards": [trl_run.is_right, is_short]}, "2 reward functions: is_right, is_short. Say with pass_reward"),
        ({"pass_reward": "is_rigth"}, "unknown pass_reward 'is_rigth'. Did you mean is_right"),
        ({"rows": lambda: trl_run.dataset().to_iterable_dataset()}, "train_dataset is a IterableDataset"),
        ({"config": {"generation_batch_size": 128}}, "takes 32 different prompts .* but the dataset has 24"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_at_once(tmp_path, options, message):
    options = {name: x() if name in ("curriculum", "rows") and callable(x) else x for name, x in options.items()}
    with pytest.raises(ConfigError, match=message):
        trainer(tmp_path, **options)


@needs_trl
@pytest.mark.slow
def test_an_id_that_occurs_twice(tmp_path):
    rows = trl_run.dataset()
    names = ["sum-0-1", *rows["name"][1:]]
    rows = rows.remove_columns("name").add_column("name", names)
    curriculum = PromptCurriculum(["sum-0-0", *names[1:]])
    with pytest.raises(ConfigError, match="the column 'name': the id 'sum-0-1' occurs twice"):
        trainer(tmp_path, curriculum, rows=rows, id_column="name")


@needs_trl
@pytest.mark.slow
@pytest.mark.parametrize(("value", "said"), [(1.5, "1.5"), (None, r"no number \(None or NaN\)")])
def test_rewards_that_are_no_pass_rates(tmp_path, value, said):
    wrong = trainer(tmp_path, rewards=lambda completions, **_: [0.0, value] * (len(completions) // 2))
    with pytest.raises(ConfigError, match=f"gave {said} to 8 of 16 completions; .* Nothing was recorded"):
        wrong.train()
    assert wrong.curriculum.summary()["records"] == 0


@needs_trl
@pytest.mark.slow
def test_one_of_several_rewards_tells_what_passed(tmp_path):
    """It need not count as a reward."""
    config = {"reward_weights": [1.0, 0.0]}
    both = trainer(tmp_path, rewards=[is_short, trl_run.is_right], config=config, pass_reward="is_right")
    both.train()
    log = next(row for row in both.state.log_history if "loss" in row)
    assert log["curriculum/recent_pass_rate"] == pytest.approx(log["rewards/is_right/mean"])


@needs_trl
@pytest.mark.slow
def test_an_evaluation_is_not_recorded(tmp_path):
    evaluated = trainer(tmp_path, eval_dataset=trl_run.dataset().select(range(4)))
    before = evaluated.curriculum.save(tmp_path / "before.npz").read_bytes()
    assert "eval_loss" in evaluated.evaluate()
    assert evaluated.curriculum.save(tmp_path / "after.npz").read_bytes() == before
    evaluated.train()
    assert evaluated.curriculum.summary()["records"] == 1


@needs_trl
@pytest.mark.slow
def test_columns_that_trl_removes_stay_away(tmp_path):
    seen = []

    def any_reward(completions, **columns):
        seen.append({"answer", "name"} & set(columns))
        return [0.0 for _ in completions]

    trainer(tmp_path, rewards=any_reward, config={"remove_unused_columns": True}).train()
    assert seen == [set()]


@needs_trl
@pytest.mark.slow
def test_a_checkpoint_of_another_trainer_or_curriculum(tmp_path):
    from procurl.integrations.trl import FILE

    trainer(tmp_path, config={"save_steps": 1}).train()
    checkpoint = tmp_path / "checkpoint-1"
    other = trainer(tmp_path, PromptCurriculum(24, group=trl_run.GROUP, seed=1))
    with pytest.raises(CheckpointError, match="another curriculum: it has seed = 0, and here it is 1"):
        other.train(resume_from_checkpoint=True)
    (checkpoint / FILE).unlink()
    with pytest.raises(CheckpointError, match=f"checkpoint-1 has no state of a curriculum .{FILE}."):
        other.train(resume_from_checkpoint=checkpoint)


@needs_trl
@pytest.mark.slow
def test_the_program_of_the_page(tmp_path, monkeypatch):
    """docs/integrations/trl.md as printed, but for the model and the length; docs/prompts.md has the same lines."""
    page = (ROOT / "docs/integrations/trl.md").read_text()
    code, towards_targets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert f"```python\n{code}```" in (ROOT / "docs/prompts.md").read_text()
    monkeypatch.chdir(tmp_path)
    trl_run.dataset().to_json("questions.jsonl")
    trl_run.dataset().select(range(4)).to_json("benchmark.jsonl")
    trl_run.model().save_pretrained("tiny")
    trl_run.tokenizer().save_pretrained("tiny")
    short = "max_steps=2, max_completion_length=3, use_cpu=True, bf16=False, report_to='none'"
    code = code.replace("Qwen/Qwen3-0.6B", "tiny").replace("num_generations=8)", f"num_generations=8, {short})")
    names = {"__name__": "__main__"}
    exec(compile(code, "docs/integrations/trl.md", "exec"), names)
    assert names["curriculum"].summary()["records"] == 2
    exec(compile(towards_targets.replace("Qwen/Qwen3-0.6B", "tiny"), "docs/integrations/trl.md", "exec"), names)
    curriculum = names["curriculum"]
    assert curriculum.strategy == "procurl-target" and len(curriculum.target_pass_rates()) == 4
    assert curriculum.summary()["pool_similarity"] < 0.99  # prompts differ
