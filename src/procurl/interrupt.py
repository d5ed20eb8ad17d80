"""Ctrl-C without losing anything: the first one is a request that the loop reads between two iterations."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interruptible:
    """While entered, the first Ctrl-C sets `requested`; a second one interrupts at once, as usual."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> Interruptible:
        # Python delivers signals to the main thread only; elsewhere Ctrl-C is somebody else's business.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
