"""Tables in Markdown whose columns line up, and the table of several runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from procurl.bench.stats import mean_and_error, with_error
from procurl.runs.store.result import Result


def comparison(results: dict[str, Result]) -> str:
    """Final return per run as a Markdown table, best first."""
    rows = []
    for name, result in results.items():
        sound = result.ret[~result.failed]
        if not len(sound):
            rows.append((float("-inf"), [name, "all seeds failed", "-"]))
            continue
        mean, error = mean_and_error(sound[:, -1])
        area, area_error = mean_and_error(sound.mean(axis=1))
        name += f" ({result.failed.sum()} of {len(result.seeds)} seeds failed)" if result.failed.any() else ""
        rows.append((float(mean), [name, with_error(mean, error), with_error(area, area_error)]))
    ordered = [row for _, row in sorted(rows, key=lambda r: -r[0])]
    return text_table(["teacher", "final return", "mean over training"], ordered)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in table]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)
