"""Ctrl-C and SIGTERM without losing anything: the first one is a request that the loop reads between two iterations.

While a compiler runs in the main thread, for half a minute on a busy machine, Python cannot answer a signal. So ours
runs in a thread of its own, and a request ends the wait for it, provided that the run has nothing to save.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # the user's, and a cluster's before it kills
COMPILER = "procurl's compiler"  # name of the threads


class Interruptible:
    """While entered, the first signal sets `requested`; a second one ends the program at once."""

    current: Interruptible | None = None  # the one that listens to the signals of this process

    def __init__(self) -> None:
        self.requested = False
        # Set by the loop once there is something to save: from then on it waits even for the compiler.
        self.unsaved = False
        self._number = signal.SIGINT
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruptible:
        # Python delivers signals to the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._request) for number in SIGNALS}
            self._outer, Interruptible.current = Interruptible.current, self
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous:
            Interruptible.current = self._outer
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def error(self) -> BaseException:
        """What the signal would have raised by itself."""
        return KeyboardInterrupt() if self._number == signal.SIGINT else SystemExit(128 + self._number)

    @contextmanager
    def dispensable(self) -> Iterator[None]:
        """For work that a request may abandon while its program is compiled; the loop then ends as usual."""
        self.unsaved, before = False, self.unsaved
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            if not self.requested:
                raise
        finally:
            self.unsaved = before

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._number = signal.Signals(number)
        if self.requested:
            raise self.error()
        self.requested = True


class CompiledInThread:
    """A program (see `procurl.programs.jit`) that is compiled in a thread of its own before it first runs."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self.eval_shape = program.eval_shape
        self._compiler: threading.Thread | None = None

    def __call__(self, *args: Any) -> Any:
        self.compile(*args)
        return self._program(*args)

    def compile(self, *args: Any) -> None:
        """Compile for arguments like these, unless that was done before."""
        self.prepare(*args)
        if self._compiler is not None:
            wait_for(self._compiler)

    def prepare(self, *args: Any) -> None:
        """Begin to compile. Arguments may be shapes. An error is left for the call itself, which will meet it again.

        The caller traces: while a second thread traces, `jax.clear_caches` fails (docs/versions.md).
        """
        if self._compiler is None:
            with suppress(Exception):
                self._compiler = start_compiler(self._program.lower(*args).compile)


def start_compiler(work: Callable[[], Any]) -> threading.Thread:
    """Not a daemon: Python must wait for it at exit, or else tears down what it works with."""

    def quietly() -> None:
        with suppress(Exception):
            work()

    thread = threading.Thread(target=quietly, name=COMPILER)
    thread.start()
    return thread


def wait_for(compiler: threading.Thread) -> None:
    """Until the compiler is done, or a signal ends the run and leaves it behind."""
    listens = threading.current_thread() is threading.main_thread()
    while compiler.is_alive():
        asked = Interruptible.current if listens else None
        if asked is not None and asked.requested and not asked.unsaved:
            raise asked.error()
        compiler.join(0.1)


def leave(status: int) -> int:
    """The status of an interrupted program, to exit with. If a compiler was left behind, the process ends here."""
    if any(thread.name == COMPILER for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
