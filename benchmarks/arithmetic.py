"""Arithmetic of graded difficulty for a small language model: every answer is right or wrong, exactly.

A problem is text such as "0347x0008=", whose answer is written from its last digit on ("6772$"), as it is worked out by
hand. Families are an operation and the operands' digits. They differ in what they have in common with the target,
multiplication of three digits by one: shorter products lead to it, sums and differences do not, and products of two
long operands are out of reach. Problems as arrays of token numbers; NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ALPHABET = "0123456789+-x=$"  # "$" ends an answer, and fills it up
END = ALPHABET.index("$")
WIDTH = 4  # digits of an operand as written: shorter ones begin with zeros
PROMPT = 2 * WIDTH + 2  # characters of "0347x0008="
ANSWER = 6  # characters of an answer, its end included


@dataclass(frozen=True)
class Family:
    """One operation on operands of so many digits."""

    operation: str
    first: int
    second: int

    @property
    def name(self) -> str:
        return f"{self.first}{self.operation}{self.second}"


TARGET = Family("x", 3, 1)
FAMILIES = (
    *(Family("+", n, n) for n in (1, 2, 3, 4)),
    *(Family("-", n, n) for n in (1, 2, 3, 4)),
    *(Family("x", n, 1) for n in (1, 2, 3, 4)),
    *(Family("x", n, 2) for n in (2, 3)),
)
SUMS, PRODUCTS, OUT_OF_REACH = "sums and differences", "easier products", "longer products"
KINDS = (TARGET.name, PRODUCTS, OUT_OF_REACH, SUMS)  # families in groups, by what they have to do with the target


@dataclass(frozen=True)
class Problems:
    """n problems as tokens, with what is known about each."""

    prompt: np.ndarray  # i64[n, PROMPT]
    answer: np.ndarray  # i64[n, ANSWER]
    family: np.ndarray  # i64[n], index into FAMILIES
    operands: np.ndarray  # i64[n, 2]

    def __len__(self) -> int:
        return len(self.family)

    def __getitem__(self, rows: np.ndarray) -> Problems:
        return Problems(self.prompt[rows], self.answer[rows], self.family[rows], self.operands[rows])


def kind(family: Family) -> str:
    if family == TARGET:
        return TARGET.name
    if family.operation != "x":
        return SUMS
    return PRODUCTS if family.first * family.second < TARGET.first * TARGET.second else OUT_OF_REACH


def draw(family: np.ndarray, rng: np.random.Generator) -> Problems:
    """One problem of each of the families i64[n]; operands have their digits exactly, and no difference is negative."""
    digits = np.array([(f.first, f.second) for f in FAMILIES])[family]  # i64[n, 2]
    low = np.where(digits == 1, 2, 10 ** (digits - 1))  # times 0 and 1 would be another, easier family
    operands = rng.integers(low, 10**digits)
    minus = np.array([f.operation == "-" for f in FAMILIES])[family]
    operands = np.where(minus[:, None], np.sort(operands, axis=1)[:, ::-1], operands)
    return write(family, operands)


def write(family: np.ndarray, operands: np.ndarray) -> Problems:
    """Problems as tokens."""
    sign = np.array([ALPHABET.index(f.operation) for f in FAMILIES])[family]
    a, b = operands[:, 0], operands[:, 1]
    results = {"+": a + b, "-": a - b, "x": a * b}
    value = np.select([sign == ALPHABET.index(s) for s in results], list(results.values()))
    equals = np.full(len(family), ALPHABET.index("="))
    prompt = np.column_stack([_digits(a, WIDTH)[:, ::-1], sign, _digits(b, WIDTH)[:, ::-1], equals])
    length = np.maximum(np.floor(np.log10(np.maximum(value, 1))).astype(int) + 1, 1)
    answer = np.where(np.arange(ANSWER) < length[:, None], _digits(value, ANSWER), END)
    return Problems(prompt, answer, family, operands)


def draw_distinct(family: int, n: int, rng: np.random.Generator, taken: np.ndarray | None = None) -> Problems:
    """n problems of one family, no two alike and none among the operands taken i64[k, 2]; fewer where it has fewer."""
    found = draw(np.full(40 * n, family), rng)
    keys = _key(found.operands)
    fresh = ~np.isin(keys, _key(taken)) if taken is not None else np.ones(len(keys), bool)
    _, first = np.unique(keys[fresh], return_index=True)
    rows = np.flatnonzero(fresh)[np.sort(first)][:n]
    return found[rows]


def joined(parts: list[Problems]) -> Problems:
    fields = ("prompt", "answer", "family", "operands")
    return Problems(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def among(problems: Problems, others: Problems) -> np.ndarray:
    """bool[n]: which problems are also among the others, family and operands alike."""
    return np.isin(_key(problems.operands) * 100 + problems.family, _key(others.operands) * 100 + others.family)


def features(problems: Problems) -> np.ndarray:
    """f32[n, 10] that anybody could write down without the model: operation, digits, digits of the answer, carries."""
    digits = np.array([(f.first, f.second) for f in FAMILIES])[problems.family] / WIDTH
    operation = np.array([[f.operation == s for s in "+-x"] for f in FAMILIES])[problems.family]
    length = (problems.answer != END).sum(axis=1) / (ANSWER - 1)
    columns = [operation, digits, length, *(_digits(o, WIDTH).mean(axis=1) / 9 for o in problems.operands.T)]
    return np.column_stack(columns).astype(np.float32)


def _key(operands: np.ndarray) -> np.ndarray:
    return operands[:, 0] * 10**WIDTH + operands[:, 1]


def _digits(values: np.ndarray, width: int) -> np.ndarray:
    """i64[n, width], last digit first."""
    return values[:, None] // 10 ** np.arange(width) % 10
