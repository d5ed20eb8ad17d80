"""The command line."""
from __future__ import annotations
import re
import argparse


def step_count(text: str) -> int:
    """A number of steps: 5000, 10k, 1M, 2.5M."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text.strip().replace("_", ""))
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of steps: expected e.g. 5000, 10k or 1M")
    return round(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()])
