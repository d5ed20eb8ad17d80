"""Curricula for language-model RL: a task is a prompt, and its value is the pass rate of a group of samples.

    curriculum = PromptCurriculum(prompts, embeddings, targets)
    ids = curriculum.batch(128)
    curriculum.record(ids, passes)

NumPy only: neither JAX nor torch is imported. docs/prompts.md says what is computed, and what it costs.
"""

from procurl.prompts.curriculum import PromptCurriculum

__all__ = ["PromptCurriculum"]
