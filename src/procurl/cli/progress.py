"""A live line for people who wait: steps, speed, time left, return on the target, the teacher's share."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from procurl.runs.log import Progress


class ProgressLine:
    """A callback for `procurl.train`. On a terminal the line is redrawn; in a log it is printed now and then."""

    def __init__(self, title: str, quiet: bool = False, every: float = 30.0) -> None:
        self.title, self.quiet, self.every = title, quiet, every
        self.console = Console(file=sys.stderr)
        self._live: Live | None = None
        self._printed = float("-inf")
        self._logger, self._news = logging.getLogger("procurl"), _News(self.console)

    def __enter__(self) -> ProgressLine:
        if not self.quiet:
            self._logger.addHandler(self._news)
            self._logger.setLevel(logging.INFO)
        if not self.quiet and self.console.is_terminal:
            self._live = Live(Text(f"{self.title}: compiling"), console=self.console, refresh_per_second=4)
            self._live.start()
        elif not self.quiet:
            self.console.print(Text(f"{self.title}: compiling"), soft_wrap=True)
        return self

    def __exit__(self, *error: Any) -> None:
        self._logger.removeHandler(self._news)
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        if self._live is not None:
            self._live.update(Text(f"{self.title}: {describe(progress)}"))
        elif not self.quiet:
            now = time.monotonic()
            if now - self._printed >= self.every or progress.steps == progress.total_steps:
                self._printed = now
                self.console.print(Text(f"{self.title}: {describe(progress)}"), soft_wrap=True)


class _News(logging.Handler):
    """Messages of the library, above the line: for instance that a run goes on from a checkpoint."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        self.console.print(Text(self.format(record)), soft_wrap=True)  # a Text: no brackets are read as markup


def describe(progress: Progress) -> str:
    """One line about a run."""
    parts = [
        f"{progress.steps:,}/{progress.total_steps:,} steps",
        f"{progress.steps_per_second:,.0f} steps/s",
        f"{_duration(progress.seconds_left)} left",
        f"return {progress.mean_return:.3f}",
    ]
    share = progress.taught.get("effective_share", np.array(np.nan))
    if np.isfinite(share).any():
        parts.append(f"plays {np.nanmean(share):.0%} of the tasks")
    if progress.failed:
        parts.append(f"{len(progress.failed)} of {len(progress.ret)} seeds failed")
    if progress.teacher_share is not None:
        parts.append(f"teacher {100 * progress.teacher_share:.1f} % (timed alone)")
    return " | ".join(parts)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
