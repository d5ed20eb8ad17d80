"""benchmarks/prompts_grpo.py: its problems, its learner, and a comparison that is cut and goes on."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def text(tokens, alphabet):
    return "".join(alphabet[t] for t in tokens)


def test_problems_are_right_and_distinct(benchmarks):
    import arithmetic

    rng = np.random.default_rng(0)
    for number, family in enumerate(arithmetic.FAMILIES):
        taken = arithmetic.draw_distinct(number, 20, rng)
        found = arithmetic.draw_distinct(number, 30, rng, taken.operands)
        assert len({tuple(o) for o in found.operands.tolist()}) == len(found) >= 16  # 1-1 has 36 in all
        assert not arithmetic.among(found, taken).any()
        for prompt, answer in zip(found.prompt, found.answer, strict=True):
            a, b = text(prompt, arithmetic.ALPHABET)[:-1].split(family.operation)
            assert (len(str(int(a))), len(str(int(b)))) == (family.first, family.second)
            value = {"+": int(a) + int(b), "-": int(a) - int(b), "x": int(a) * int(b)}[family.operation]
            assert text(answer, arithmetic.ALPHABET).rstrip("$")[::-1] == str(value)


@pytest.mark.slow
def test_sampled_pass_rates_are_the_exact_ones_and_grpo_raises_them(benchmarks, request):
    torch = pytest.importorskip("torch")
    import arithmetic
    import grpo

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small products are slower with more
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    torch.manual_seed(0)
    model = grpo.Transformer(grpo.SIZES["tiny"])
    problems = arithmetic.draw(np.full(4, 4), np.random.default_rng(0))  # one digit minus another
    learner = grpo.Learner(model, torch.optim.Adam(model.parameters(), lr=3e-3), group=32, seed=0)
    while grpo.pass_rate(model, problems).mean() < 0.3:
        learner.supervised_step(problems)
    before = grpo.pass_rate(model, problems)
    np.testing.assert_allclose(learner.try_out(problems, 4000), before, atol=0.04)  # five standard errors
    for _ in range(20):
        learner.grpo_step(problems, *learner.rollouts(problems))
    assert grpo.pass_rate(model, problems).mean() > before.mean() + 0.2


@pytest.mark.slow
def test_a_comparison_that_was_cut_goes_on(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, str(BENCHMARKS / "prompts_grpo.py"), "--size", "tiny", "--seeds", "2"]
    command += ["--starts", str(tmp_path / "starts"), "--out", str(tmp_path)]
    file = tmp_path / "prompts-grpo-tiny.jsonl"
    subprocess.run([*command, "--strategies", "uniform"], check=True, capture_output=True)
    first = file.read_text()
    more = ["--strategies", "uniform", "learnability", "procurl-unif-features", "procurl-target-features"]
    subprocess.run([*command, *more, "--picture", str(tmp_path / "picture.png")], check=True, capture_output=True)
    assert file.read_text().startswith(first)  # not repeated
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted((r["strategy"], r["seed"]) for r in rows) == sorted((s, k) for s in more[1:] for k in (0, 1))
    budget = rows[0]["size"]["samples"]
    assert all(r["samples"][0] == 0 and r["samples"][-1] >= budget for r in rows)
    by = {(r["strategy"], r["seed"]): r for r in rows}
    assert by["uniform", 0]["pass_rates"][0] == by["procurl-unif-features", 0]["pass_rates"][0]  # one start for all
    batches = {s: np.sum(by[s, 0]["dealt"]) for s in more[1:]}
    assert batches["learnability"] < batches["uniform"]  # what it tried out was paid for
    assert "ProCuRL-Target, features - ProCuRL-Unif, features" in (tmp_path / "prompts-grpo-tiny.md").read_text()
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    other = subprocess.run([*command, "--set", "rate=1e-3", "samples=640"], capture_output=True, text=True)
    assert other.returncode and "give another --out" in other.stderr


@pytest.mark.slow
def test_what_is_chosen_can_be_given(tmp_path):
    """A start whose pass rate is nearest to what is wanted, and a learning rate, as options of the experiment."""
    pytest.importorskip("torch")
    starts = ["--size", "tiny", "--starts", str(tmp_path / "starts")]
    command = [sys.executable, str(BENCHMARKS / "prompts_grpo_calibrate.py"), *starts, "--samples", "128"]
    command += ["--steps", "3", "6", "--weights", "0.1", "5", "--rates", "1e-3"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "frequencies of" in said and said.count("| 0.1 ") == said.count("| 5 ") == 2
    chosen = said.splitlines()[-1].split()
    assert chosen[0] == "--set" and chosen[1:] == ["start_steps=6", "target_weight=5", "rate=0.001"]
    experiment = [sys.executable, str(BENCHMARKS / "prompts_grpo.py"), *starts, "--out", str(tmp_path), "--seeds", "1"]
    subprocess.run([*experiment, "--strategies", "mixed", *chosen, "samples=64"], check=True, capture_output=True)
    (row,) = (tmp_path / "prompts-grpo-tiny.jsonl").read_text().splitlines()
    assert json.loads(row)["size"]["start_steps"] == 6 and json.loads(row)["size"]["samples"] == 64
