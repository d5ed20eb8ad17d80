"""Ctrl-C and SIGTERM without losing anything: the first one is a request that the loop reads between two iterations."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # a user's, and a cluster's before it kills


class Interruptible:
    """While entered, the first signal sets `requested`; a second one ends the program at once."""

    def __init__(self) -> None:
        self.requested = False
        self._number = signal.SIGINT
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruptible:
        # Python delivers signals to the main thread only; elsewhere they are somebody else's business.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._request) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def error(self) -> BaseException:
        """What the signal would have raised by itself."""
        return KeyboardInterrupt() if self._number == signal.SIGINT else SystemExit(128 + self._number)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._number = signal.Signals(number)
        if self.requested:
            raise self.error()
        self.requested = True
