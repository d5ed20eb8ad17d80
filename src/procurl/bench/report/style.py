"""How strategies and settings look and are called, in every figure and on every page. Needs no matplotlib.

A strategy has one colour and one marker everywhere; runs of the same strategy with other hyper-parameters have another
line style. Colours are for people, those with colour-blindness too; markers and lines are for printing in grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from procurl.runs.store.result import Result

# Okabe and Ito's palette, which people with colour-blindness can tell apart, and colours of Paul Tol's.
COLOURS = {
    "ProCuRLPath": "#882255",
    "ProCuRLTarget": "#D55E00",
    "ProCuRLUnif": "#E69F00",
    "SPDL": "#CC79A7",
    "CURROT": "#0072B2",
    "PLR": "#56B4E9",
    "GRADIENT": "#009E73",
    "ALPGMM": "#332288",
    "LearningProgress": "#661100",
    "VDS": "#AA4499",
    "ADR": "#999933",
    "RobustPLR": "#44AA99",
    "SFL": "#CC6677",
    "IID": "#000000",
    "Target": "#999999",
}
OWN_COLOUR = "#117733"  # teachers from elsewhere
MARKERS: dict[str, Any] = dict(
    zip(COLOURS, [*"<o^vsDPphdH8", (4, 1, 0), *"X*"], strict=True)
)  # of matplotlib; all filled
OWN_MARKER = ">"
LINES = ("-", "--", ":", "-.")  # the first variant of a strategy, the second, ...
# MiniG's families from the target to those that have least in common with it.
FAMILY_COLOURS = {
    "blocked-unlock-pickup": "#D55E00",
    "unlock-pickup": "#E69F00",
    "unlock": "#F0E442",
    "four-rooms": "#56B4E9",
    "crossing": "#009E73",
    "dynamic-obstacles": "#0072B2",
}
NAMES = {
    "ProCuRLPath": "ProCuRL-Path",
    "ProCuRLTarget": "ProCuRL-Target",
    "ProCuRLUnif": "ProCuRL-Unif",
    "ALPGMM": "ALP-GMM",
    "LearningProgress": "Learning progress",
    "RobustPLR": "Robust PLR",
}
# The paper's names of its settings.
TITLES = {
    "point-mass-1t": "PM-s:1T",
    "point-mass-2g": "PM-s:2G",
    "maze-plane": "SGR",
    "minigrid": "MiniG",
    "bipedal": "BW",
    "bipedal-jax": "BW in JAX",
}


class Look(NamedTuple):
    """How the curves of one strategy, or of one variant of it, are drawn."""

    colour: str
    marker: str
    line: str


def looks(strategies: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """Label -> look, for pairs of (teacher class, label), in the order of a legend."""
    order = [*COLOURS]
    distinct = dict.fromkeys(strategies)
    found: dict[str, Look] = {}
    for teacher, label in sorted(distinct, key=lambda s: order.index(s[0]) if s[0] in order else len(order)):
        colour = COLOURS.get(teacher, OWN_COLOUR)
        before = sum(look.colour == colour for look in found.values())
        found[label] = Look(colour, MARKERS.get(teacher, OWN_MARKER), LINES[before % len(LINES)])
    return found


def labels(results: Sequence[Result]) -> list[str]:
    """Of runs, by their configurations."""
    return labels_of([result.config for result in results])


def labels_of(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Teachers' names; where two share one, the options in which they differ are added."""
    flat = [_flat({k: v for k, v in c.items() if k not in ("space", "action", "seeds")}) for c in configs]
    plain = [NAMES.get(c["teacher"]["class"], c["teacher"]["class"]) for c in configs]
    found = []
    for name, options in zip(plain, flat, strict=True):
        same = [other for other_name, other in zip(plain, flat, strict=True) if other_name == name]
        keys = [k for k in dict.fromkeys(k for o in same for k in o) if len({repr(o.get(k)) for o in same}) > 1]
        details = ", ".join(f"{k.removeprefix('teacher.').removeprefix('config.')}={options.get(k)}" for k in keys)
        found.append(f"{name} ({details})" if details else name)
    return found


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, value in data.items():
        rows |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return rows


def looks_of(results: Sequence[Result]) -> dict[str, Look]:
    """The same for the runs of one setting, by their labels."""
    return looks(zip((r.config["teacher"]["class"] for r in results), labels(results), strict=True))


def colour_of(result: Result) -> str:
    return COLOURS.get(result.config["teacher"]["class"], OWN_COLOUR)
