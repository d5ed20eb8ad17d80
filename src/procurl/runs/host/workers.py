"""Worker processes that play environments, and what happens when one dies.

A member lives in one worker for the whole run. The main process tells all workers what to do and then collects the
answers in order, so that results do not depend on which worker is fastest.
"""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from procurl.envs.host_tasks import HostTask
from procurl.errors import WorkerError
from procurl.runs.host.member import Actor, Floats, Member, Score, Steps

SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Workers:
    """Processes that play `n_members` environments of one kind, and whole episodes apart from those."""

    def __init__(self, make: Callable[[], Any], n_members: int, n_workers: int) -> None:
        # Neighbours share a worker: most are of one seed, so that one policy is sent for them.
        cuts = [i * n_members // n_workers for i in range(n_workers + 1)]
        self._members = [range(a, b) for a, b in itertools.pairwise(cuts)]
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        context = multiprocessing.get_context("spawn")  # a fork would copy JAX's threads in the middle of their work
        with _environment(dict.fromkeys(SINGLE_THREADED, "1")):
            for members in self._members:
                here, there = context.Pipe()
                process = context.Process(target=serve, args=(there, make, list(members)), daemon=True)
                process.start()
                there.close()
                self._connections.append(here)
                self._processes.append(process)

    def begin(self, tasks: Sequence[HostTask], actions: Sequence[Floats]) -> list[Floats]:
        """Every member starts its task and repeats the actions already taken in it; returns the observations."""
        return self._all("begin", list(zip(tasks, actions, strict=True)))

    def play(self, actors: Sequence[Actor], jobs: Sequence[tuple[Any, ...]]) -> list[Steps]:
        """For each member: (number of its actor, tasks, steps, key, at random) -> its steps."""
        return self._all("play", jobs, actors)

    def episodes(self, actors: Sequence[Actor], jobs: Sequence[tuple[int, HostTask]]) -> list[Score]:
        """Whole episodes apart from the members': (number of an actor, task) -> score. A free worker takes the next."""
        for i in range(len(self._connections)):
            self._send(i, ("actors", list(actors)))
        scores: list[Any] = [None] * len(jobs)
        busy: dict[int, int] = {}  # worker -> job
        waiting = iter(range(len(jobs)))

        def employ(i: int) -> None:
            job = next(waiting, None)
            if job is not None:
                busy[i] = job
                self._send(i, ("episode", jobs[job]))

        for i in range(len(self._connections)):
            self._receive(i)
            employ(i)
        while busy:
            for connection in multiprocessing.connection.wait([self._connections[i] for i in busy]):
                i = self._connections.index(connection)  # type: ignore[arg-type]
                scores[busy.pop(i)] = self._receive(i)
                employ(i)
        return scores

    def close(self) -> None:
        """End all processes. They also end by themselves when the main process does."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def _all(self, command: str, jobs: Sequence[Any], actors: Sequence[Actor] = ()) -> list[Any]:
        for i, members in enumerate(self._members):
            own = {k: jobs[k] for k in members}
            needed = {job[0] for job in own.values()} if actors else ()
            self._send(i, (command, own, {number: actors[number] for number in needed}))
        return [answer for i in range(len(self._connections)) for answer in self._receive(i)]

    def _send(self, i: int, message: Any) -> None:
        try:
            self._connections[i].send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(i) from None

    def _receive(self, i: int) -> Any:
        try:
            status, answer = self._connections[i].recv()
        except (EOFError, ConnectionResetError):
            raise self._death(i) from None
        if status == "error":
            raise WorkerError(f"worker {i} failed; a run folder goes on from its last checkpoint.\n{answer}")
        return answer

    def _death(self, i: int) -> WorkerError:
        process = self._processes[i]
        process.join(timeout=5)
        code = process.exitcode
        how = "does not answer" if code is None else f"ended with status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return WorkerError(
            f"worker {i} (process {process.pid}) {how} while it played. The same command goes on from the run folder's "
            f"last checkpoint; if memory was short, take fewer workers."
        )


def serve(connection: Connection, make: Callable[[], Any], members: list[int]) -> None:
    """The life of a worker: it ends when the other end of the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process to answer
    team = {k: Member(make) for k in members}
    guest: Member | None = None  # plays the whole episodes
    actors: Sequence[Actor] = ()
    while True:
        try:
            command, *rest = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            answer: Any
            if command == "begin":
                for k, (task, actions) in rest[0].items():
                    team[k].begin(task, actions)
                answer = [team[k].obs for k in rest[0]]
            elif command == "play":
                jobs, own = rest
                answer = [team[k].play(own[number], *job) for k, (number, *job) in jobs.items()]
            elif command == "actors":
                actors, answer = rest[0], None
            else:
                number, task = rest[0]
                guest = guest or Member(make)
                answer = guest.episode(actors[number], task)
            connection.send(("done", answer))
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception:
            connection.send(("error", traceback.format_exc()))


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for the processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
