"""A small transformer over characters, its supervised start, and GRPO: one on-policy step per batch of groups.

GRPO (Shao et al. 2024) samples a group of answers to each prompt, and an answer's advantage is its reward less the
group's mean, divided by the group's standard deviation. One step per batch needs no clipping, and there is no penalty
for leaving the start. Prompts have one length, and so have answers (filled up after their end), so that a batch is a
rectangle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from arithmetic import ALPHABET, ANSWER, END, PROMPT, Problems
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """A model and how long it is trained."""

    width: int
    layers: int
    heads: int
    start_steps: int  # updates of the supervised start
    start_batch: int  # problems per update
    start_rate: float  # its peak learning rate
    rate: float  # GRPO's learning rate
    batch: int  # prompts per update of GRPO
    samples: int  # budget of GRPO, in answers sampled
    target_weight: float = 0.1  # of the target family in the start's mixture, where all families have some 22


SIZES = {
    "tiny": Size(32, 1, 2, 30, 32, 3e-3, 3e-4, 8, 1280),  # for tests: it learns nothing
    "small": Size(64, 3, 4, 800, 128, 4e-3, 3e-4, 64, 80_000),
    "10M": Size(384, 6, 6, 400, 256, 1e-3, 1e-4, 64, 200_000, 0.03),
}


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        n, steps, width = x.shape
        parts = self.into(self.norm_1(x)).view(n, steps, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each f32[n, heads, steps, width / heads]
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        # A prompt and a whole sequence are causal; a single further token sees all that came before it.
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, steps, width))
        return x + self.perceptron(self.norm_2(x)), [k, v]


class Transformer(nn.Module):
    """Decoder-only, learnt positions."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), size.width)
        self.position = nn.Embedding(PROMPT + ANSWER, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, len(ALPHABET), bias=False)
        for weights in (self.token.weight, self.position.weight):
            nn.init.normal_(weights, std=0.1)

    def hidden(
        self, tokens: torch.Tensor, caches: list[list[torch.Tensor]] | None = None
    ) -> tuple[torch.Tensor, list[list[torch.Tensor]]]:
        """The last layer's f32[n, T, width], and what sampling on needs."""
        before = 0 if caches is None else caches[0][0].shape[2]
        x = self.token(tokens) + self.position.weight[before : before + tokens.shape[1]]
        found = []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[i])
            found.append(cache)
        return self.norm(x), found


def answer_log_probs(model: Transformer, prompt: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    """f32[n, ANSWER]: the log probability of each character, 0 after the answer's end."""
    hidden, _ = model.hidden(torch.cat([prompt, answer[:, :-1]], dim=1))
    scores = model.head(hidden[:, PROMPT - 1 :])
    chosen = -functional.cross_entropy(scores.flatten(0, 1), answer.flatten(), reduction="none").view(answer.shape)
    return chosen * counts(answer)


def counts(answer: torch.Tensor) -> torch.Tensor:
    """f32[n, ANSWER]: 1 up to the first end, 0 after it."""
    ended = (answer == END).long().cumsum(dim=1) - (answer == END).long()
    return (ended == 0).float()


@torch.no_grad()
def pass_rate(model: Transformer, problems: Problems) -> np.ndarray:
    """f32[n]: the probability of the right answer at temperature 1. It is exact, as there is one right answer."""
    device = next(model.parameters()).device
    prompt, answer = (torch.as_tensor(x, device=device) for x in (problems.prompt, problems.answer))
    return answer_log_probs(model, prompt, answer).sum(dim=1).exp().cpu().numpy()


@torch.no_grad()
def embeddings(model: Transformer, problems: Problems) -> np.ndarray:
    """f32[n, width]: the last layer's hidden states, their mean over the prompt."""
    device = next(model.parameters()).device
    hidden, _ = model.hidden(torch.as_tensor(problems.prompt, device=device))
    return hidden.mean(dim=1).cpu().numpy()


@torch.no_grad()
def sample(model: Transformer, prompt: torch.Tensor, group: int, generator: torch.Generator) -> torch.Tensor:
    """i64[n, group, ANSWER]: answers at temperature 1."""
    hidden, caches = model.hidden(prompt)
    caches = [[x.repeat_interleave(group, dim=0) for x in cache] for cache in caches]
    last = hidden[:, -1].repeat_interleave(group, dim=0)
    answer = []
    for step in range(ANSWER):
        p = model.head(last).softmax(dim=1)
        # What torch.multinomial draws, to the bit, without its look at p on the host.
        answer.append((p / torch.empty_like(p).exponential_(generator=generator)).argmax(dim=1, keepdim=True))
        if step < ANSWER - 1:
            hidden, caches = model.hidden(answer[-1], caches)
            last = hidden[:, -1]
    return torch.cat(answer, dim=1).view(len(prompt), group, ANSWER)


def right(answers: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """f32[n, group]: 1 where an answer is the truth up to its end."""
    wrong = (answers != truth[:, None]) & (counts(truth)[:, None] > 0)
    return (~wrong.any(dim=2)).float()


@torch.no_grad()
def played(
    model: Transformer, generator: torch.Generator, group: int, prompt: torch.Tensor, truth: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """A group of answers to each prompt, and their rewards f32[n, group]."""
    answers = sample(model, prompt, group, generator)
    return answers, right(answers, truth)


def policy_gradient(
    model: Transformer, prompt: torch.Tensor, answers: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Downwards, of each answer's log probability times its weight f32[n, group]."""
    prompt = prompt.repeat_interleave(answers.shape[1], dim=0)
    log_prob = answer_log_probs(model, prompt, answers.flatten(0, 1)).sum(dim=1)
    return torch.autograd.grad(-(weight.flatten() * log_prob).sum(), list(model.parameters()))


def likelihood_gradient(model: Transformer, prompt: torch.Tensor, answer: torch.Tensor) -> tuple[torch.Tensor, ...]:
    loss = -answer_log_probs(model, prompt, answer).sum() / counts(answer).sum()
    return torch.autograd.grad(loss, list(model.parameters()))


class Learner:
    """A model that samples groups of answers and learns, with its optimiser and its random numbers on one device."""

    def __init__(self, model: Transformer, optimiser: torch.optim.Optimizer, group: int, seed: int) -> None:
        self.model, self.optimiser = model, optimiser
        self.device = next(model.parameters()).device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.play = Replayed(partial(played, model, self.generator, group), self.generator)
        self.policy_gradient = Replayed(partial(policy_gradient, model))
        self.likelihood_gradient = Replayed(partial(likelihood_gradient, model))

    def rollouts(self, problems: Problems) -> tuple[torch.Tensor, ...]:
        """A group of answers to each problem, and their rewards f32[n, group]."""
        return self.play(*self.tensors(problems.prompt, problems.answer))

    def try_out(self, problems: Problems, samples: int) -> np.ndarray:
        """f32[n]: the share of so many answers to each problem that are right."""
        prompt, truth = self.tensors(problems.prompt, problems.answer)
        _, rewards = played(self.model, self.generator, samples, prompt, truth)
        return rewards.mean(dim=1).cpu().numpy()

    def grpo_step(self, problems: Problems, answers: torch.Tensor, rewards: torch.Tensor) -> None:
        """One step up the policy gradient; a group whose rewards are all alike has no advantage."""
        spread = rewards.std(dim=1, keepdim=True)
        weight = (rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-4) / rewards.numel()
        tells = spread[:, 0] > 0
        if not tells.any():
            return
        (prompt,) = self.tensors(problems.prompt)
        if not answers.is_cuda:  # leaving them out saves work; a GPU has its record for batches of one shape
            prompt, answers, weight = prompt[tells], answers[tells], weight[tells]
        self._step(self.policy_gradient(prompt, answers, weight))

    def supervised_step(self, problems: Problems) -> None:
        self._step(self.likelihood_gradient(*self.tensors(problems.prompt, problems.answer)))

    def tensors(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        return [torch.as_tensor(x, device=self.device) for x in arrays]

    def _step(self, gradient: tuple[torch.Tensor, ...]) -> None:
        for weights, slope in zip(self.model.parameters(), gradient, strict=True):
            weights.grad = slope
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()


class Replayed:
    """A function of tensors; on a GPU, its kernels are recorded once and launched together from then on (a CUDA graph).

    An update is more than a thousand kernels, and launching them one by one takes longer than what they compute. Every
    shape of inputs has a record of its own. The outcome is overwritten by the next call.
    """

    WARM_UP = 3

    def __init__(self, function: Callable[..., tuple[torch.Tensor, ...]], draws: torch.Generator | None = None) -> None:
        self.function, self.draws = function, draws  # the random numbers that the function uses
        self.records: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, list[torch.Tensor], Any]] = {}

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not inputs[0].is_cuda:
            return self.function(*inputs)
        shapes = tuple(x.shape for x in inputs)
        if shapes not in self.records:
            self.records[shapes] = self._record([x.clone() for x in inputs])
        graph, mine, outcome = self.records[shapes]
        for x, given in zip(mine, inputs, strict=True):
            x.copy_(given)
        graph.replay()
        return outcome

    def _record(self, inputs: list[torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor], Any]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up, which must not be recorded
            for _ in range(self.WARM_UP):
                self.function(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        if self.draws is not None:
            graph.register_generator_state(self.draws)
        with torch.cuda.graph(graph):
            outcome = self.function(*inputs)
        return graph, inputs, outcome
