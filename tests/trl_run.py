"""GRPO on a tiny model in a process of its own: `test_trl.py` starts it, with torchrun where there are to be several.

    python tests/trl_run.py FOLDER NAME STEPS [resume] [kill N] [kill-in-save N] [seed-by-rank] [unlike] [FIELD N ...]

Each process writes what it did to FOLDER/NAME-RANK.json. With `kill N` it kills itself in the rewards of generation N,
with `kill-in-save N` while it writes the Nth checkpoint. A FIELD is one of GRPOConfig.
The model has random weights and the tokenizer is made here: nothing is downloaded.
"""

import json
import os
import signal
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

CHARACTERS = "0123456789+="
GROUP = 4


def tokenizer():
    """One token for each character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", *CHARACTERS]
    found = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<pad>"))
    found.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    found.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=found, pad_token="<pad>", eos_token="<eos>", padding_side="left", model_max_length=32
    )


def model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(CHARACTERS) + 2, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def dataset():
    from datasets import Dataset

    sums = [(a, b) for a in range(6) for b in range(4)]
    return Dataset.from_dict(
        {
            "prompt": [f"{a}+{b}=" for a, b in sums],
            "answer": [str(a + b) for a, b in sums],
            "name": [f"sum-{a}-{b}" for a, b in sums],
        }
    )


def arguments(folder, steps, **changed):
    from trl import GRPOConfig

    return GRPOConfig(
        **{
            "output_dir": str(folder), "max_steps": steps, "num_generations": GROUP, "max_completion_length": 3,
            "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "learning_rate": 1e-3,
            "save_steps": 2, "logging_steps": 1, "seed": 7, "report_to": "none", "use_cpu": True, "bf16": False,
            "disable_tqdm": True,
        }
        | changed
    )  # fmt: skip


def is_right(prompts, completions, answer, **_):
    """Whether the answer's digit is anywhere in the completion: a random model finds it now and then."""
    return [float(a in text) for text, a in zip(completions, answer, strict=True)]


def main(folder, name, steps, options):
    from procurl.integrations.trl import CurriculumGRPOTrainer
    from procurl.prompts import PromptCurriculum

    rank = int(os.environ.get("RANK", "0"))
    events = []

    class Watched(PromptCurriculum):
        def batch(self, n):
            found = super().batch(n)
            if "unlike" in options and rank:  # a processor that rounds in its own way may draw differently
                found.reverse()
            events.append(["batch", found])
            return found

        def record(self, ids, *args, **kwargs):
            super().record(ids, *args, **kwargs)
            events.append(["record", list(ids), kwargs["rewards"].tolist()])

    def rewards(prompts, completions, answer, name, trainer_state, **_):
        scores = is_right(prompts, completions, answer)
        events.append(["rewards", name, scores])
        if sum(e[0] == "rewards" for e in events) == options.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        return scores

    rows = dataset()
    curriculum = Watched(rows["name"][:], group=GROUP, seed=rank if "seed-by-rank" in options else 3)
    changed = {name: value for name, value in options.items() if "_" in name}
    trainer = CurriculumGRPOTrainer(
        model(), rewards, arguments(folder, steps, **changed), train_dataset=rows, processing_class=tokenizer(),
        curriculum=curriculum, id_column="name",
    )  # fmt: skip
    if "kill-in-save" in options:
        kill_in_save(trainer, options["kill-in-save"])
    trainer.train(resume_from_checkpoint="resume" in options)
    curriculum.save(Path(folder) / f"{name}-{rank}.npz")
    weights = {key: value.double().sum().item() for key, value in trainer.model.state_dict().items()}
    report = {"events": events, "weights": weights, "logs": [x for x in trainer.state.log_history if "loss" in x]}
    (Path(folder) / f"{name}-{rank}.json").write_text(json.dumps(report))


def kill_in_save(trainer, number):
    """The model is written by then, and the trainer's own state is not."""
    whole, count = trainer._save_rng_state, iter(range(1, 1000))

    def interrupted(*args):
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*args)

    trainer._save_rng_state = interrupted


def parsed(words):
    """`resume kill 3` -> {"resume": None, "kill": 3}."""
    found, last = {}, None
    for word in words:
        if word.isdigit():
            found[last] = int(word)
        else:
            last = word
            found[last] = None
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), parsed(sys.argv[4:]))
