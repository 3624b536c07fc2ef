"""A line to a process that makes rollouts: how it is started, asked, and seen off."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from jade.config import Config
from jade.errors import BackboneFailed
from jade.learn.rollouts.desk import CANCEL, live

END_SECONDS = 30.0
"""What a process gets to end by itself."""
LAST_SECONDS = 2.0
"""What one that has hung up gets, so that its code is known."""
PRIORITY, FIRST, SECOND = "CUDA_MPS_CLIENT_PRIORITY", "0", "1"
"""How MPS is told whose kernels go first where two processes share a GPU."""


def ignore(part: Any) -> None:
    """Who asks for something that comes whole need not hear of parts."""


class Line:
    """The learner's end: questions with a number, and answers that come when they come."""

    def __init__(self, pipe: Connection, process: BaseProcess) -> None:
        self._pipe, self._process = pipe, process
        self._numbers = itertools.count()
        self._open: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._reader = threading.Thread(target=self._read, name="jade-beside", daemon=True)
        self._reader.start()

    async def ask(self, what: str, *given: object, on_part: Callable[[Any], None] = ignore) -> Any:
        """The answer; `on_part` hears what of it is there before."""
        number = next(self._numbers)
        answer = self._loop.create_future()
        self._open[number] = answer, on_part
        try:
            if not self._say((number, what, given)):
                raise self._lost()
            return await answer
        except asyncio.CancelledError:
            self._say((number, CANCEL, ()))  # if nobody is there, nobody goes on with it
            raise
        finally:
            self._open.pop(number, None)

    def hang_up(self) -> None:
        """Said, since closing would not be heard: the thread that reads still holds this end open."""
        self._say(None)

    def close(self) -> None:
        """When nobody is at the other end any more."""
        self._reader.join()
        self._pipe.close()

    def _say(self, said: object) -> bool:
        """Whether somebody may hear it. The error ends here: where it is kept, as another one's context, Python 3.13
        complains of the buffer that it holds."""
        try:
            self._pipe.send(said)
        except OSError:
            return False
        return True

    def _read(self) -> None:
        try:
            while True:
                self._loop.call_soon_threadsafe(self._hand_over, *self._pipe.recv())
        except (EOFError, OSError):
            return
        finally:  # also behind an answer that cannot be read: nobody is to wait for ever
            with suppress(RuntimeError):  # the loop has ended, and with it those who waited
                self._loop.call_soon_threadsafe(self._give_up)

    def _hand_over(self, number: int, is_whole: bool, answer: Any, error: Exception | None) -> None:
        # Whoever was cancelled is not waiting any more; the other process may not have heard of it yet.
        waiting, on_part = self._open.get(number, (None, ignore))
        if waiting is None or waiting.done():
            return
        if error is not None:
            waiting.set_exception(error)
        elif is_whole:
            waiting.set_result(answer)
        else:
            on_part(answer)

    def _give_up(self) -> None:
        for waiting, _ in self._open.values():
            if not waiting.done():
                waiting.set_exception(self._lost())

    def _lost(self) -> BackboneFailed:
        self._process.join(LAST_SECONDS)
        return BackboneFailed(
            f"the process that makes the rollouts ended (code {self._process.exitcode}); go on with --resume"
        )


@asynccontextmanager
async def open_line(config: Config) -> AsyncIterator[Line]:
    """A process that was started, whether it is ready or not, and is ended in the end."""
    processes = multiprocessing.get_context("spawn")  # a device cannot be shared with a fork
    ours, theirs = processes.Pipe()
    process = processes.Process(target=live, args=(config, Path.cwd(), theirs), name="jade-rollouts", daemon=True)
    with _told(FIRST), _undisturbed():
        process.start()
    theirs.close()  # else this process would hold both ends, and never hear that the other has ended
    line = Line(ours, process)
    try:
        yield line
    finally:
        line.hang_up()
        await asyncio.to_thread(_see_off, process)
        line.close()


def _see_off(process: BaseProcess) -> None:
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def stand_back() -> None:
    """Ask MPS to let the samplers' kernels go first: they are short and many, and each would wait behind the long ones
    of an update. To be called before this process has touched a GPU. A priority that the user has set is kept."""
    os.environ.setdefault(PRIORITY, SECOND)


@contextmanager
def _told(priority: str) -> Iterator[None]:
    """Processes that are started meanwhile have this one."""
    own = os.environ.get(PRIORITY)
    os.environ[PRIORITY] = priority
    try:
        yield
    finally:
        if own is None:
            del os.environ[PRIORITY]
        else:
            os.environ[PRIORITY] = own


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Processes that are started meanwhile do not hear a terminal's Ctrl-C, which reaches them as well: not while they
    load what could ignore it. Here it is heard afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it comes with the first process, and would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
