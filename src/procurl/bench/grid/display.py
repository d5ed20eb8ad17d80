"""One display for the whole grid: how much is done, how long it will take, what runs now, and news above it."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from procurl.bench.grid.folder import GridFolder, summary

LINES = 16  # running cells that are shown at once


class Display:
    """On a terminal it is redrawn; in a log, news is printed as it comes and the state now and then."""

    def __init__(self, folder: GridFolder, quiet: bool = False, every: float = 30.0) -> None:
        self.folder, self.quiet, self.every = folder, quiet, every
        self.console = Console(file=sys.stderr)
        self._live: Live | None = None
        self._began = self._printed = time.monotonic()
        self._done_before: float | None = None

    def __enter__(self) -> Display:
        if not self.quiet and self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._drawn, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def news(self, text: str) -> None:
        if not self.quiet:
            self.console.print(Text(text), soft_wrap=True)

    def refresh(self) -> None:
        """Something has changed. The live display notices by itself."""
        if self._done_before is None:
            self._done_before = self._share()
        now = time.monotonic()
        if self._live is None and not self.quiet and now - self._printed >= self.every:
            self._printed = now
            self.console.print(Text(self._headline()), soft_wrap=True)

    def _share(self) -> float:
        """Of all steps of all seeds."""
        played = sum(s.steps * len(c.seeds) for c, s in self.folder.states.items())
        planned = sum((s.total or c.steps) * len(c.seeds) for c, s in self.folder.states.items())
        return played / planned

    def _headline(self) -> str:
        share = self._share()
        gained = share - (self._done_before or 0.0)
        left = ""
        if gained > 0 and share < 1:
            seconds = round((time.monotonic() - self._began) * (1 - share) / gained)
            left = f" | about {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
        return f"{summary(self.folder)} | {share:.0%} of the steps{left}"

    def _drawn(self) -> Table:
        """What the terminal shows."""
        running = [(c, s) for c, s in self.folder.states.items() if s.state == "running"]
        table = Table.grid(padding=(0, 1))
        for cell, state in running[:LINES]:
            ret = "starting" if state.ret is None else f"return {state.ret:.3f}"
            bar = ProgressBar(total=state.total or cell.steps, completed=state.steps, width=20)
            table.add_row(Text(f"  {cell.name}"), bar, Text(f"{state.steps:,}", justify="right"), Text(ret))
        if len(running) > LINES:
            table.add_row(Text(f"  and {len(running) - LINES} more"))
        whole = Table.grid()
        for part in (Text(self._headline()), ProgressBar(total=1.0, completed=self._share(), width=60), table):
            whole.add_row(part)
        return whole
