"""Who turns the engine's crank: a worker thread, or the event loop itself.

Under the thread the loop stays live while the model computes. Inline, every step runs inside the loop, between its own
turns: the same order of calls gives the same batches and so the same bits, which resumable training needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from jade.backbone.local.engine import Engine
from jade.backbone.local.job import Job, Outcome, Ticket
from jade.backbone.local.turns import OF_THIS_PROCESS
from jade.errors import BackboneFailed

SETTLE_TURNS = 4
"""Loop turns between two inline steps: enough for callers that got an answer to come back with their next question."""


READ_AT_ONCE = 128
"""Prompts tokenised together: enough for the tokenizer to work in parallel, few enough to be ready soon."""


class Driver(Protocol):
    """Runs an engine; `submit` and `update` are called in an event loop, and tickets are settled there."""

    def submit(self, job: Job) -> None: ...
    def update(self, apply: Callable[[], int], ticket: Ticket) -> None: ...
    async def close(self) -> None: ...


class InlineDriver:
    """Steps the engine inside the caller's event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._arrived: list[Job] = []
        self._pump: asyncio.Task[None] | None = None

    def submit(self, job: Job) -> None:
        self._arrived.append(job)
        self._start()

    def update(self, apply: Callable[[], int], ticket: Ticket) -> None:
        self._engine.update(apply, ticket)
        self._start()

    async def close(self) -> None:
        if self._pump and self._pump.get_loop() is asyncio.get_running_loop():
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self._take_in()
        _settle(self._engine.fail_all("the backbone was closed"))

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        # A pump of a loop that has ended is never done, and never runs again.
        if self._pump is None or self._pump.done() or self._pump.get_loop() is not loop:
            self._pump = loop.create_task(self._run())

    async def _run(self) -> None:
        while self._arrived or self._engine.busy:
            for _ in range(SETTLE_TURNS):
                await asyncio.sleep(0)
            self._take_in()
            _settle(_guarded_step(self._engine))

    def _take_in(self) -> None:
        jobs, self._arrived = [job for job in self._arrived if not job.cancelled], []
        if jobs:
            self._engine.prepare(jobs)
            self._engine.submit(jobs)


class ThreadDriver:
    """Steps the engine in a thread of its own, which sleeps when there is nothing to do. Another one tokenises what
    arrives meanwhile, so that the model does not wait for that."""

    def __init__(self, engine: Engine, settle_in: Callable[[], None]) -> None:
        """`settle_in` is called first in the engine's thread."""
        self._engine, self._settle_in = engine, settle_in
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="jade-tokenise")
        self._unread: deque[Job] = deque()
        self._reading = False
        self._news = threading.Condition()
        self._arrived: deque[Job] = deque()
        self._updates: deque[tuple[Callable[[], int], Ticket]] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        with self._news:
            if self._closing:
                raise BackboneFailed("the backbone was closed")
            self._unread.append(job)
            if not self._reading:  # once for a crowd: handing work to a pool costs as much as a call's whole way in
                self._reading = True
                self._reader.submit(self._read)

    def update(self, apply: Callable[[], int], ticket: Ticket) -> None:
        with self._news:
            self._updates.append((apply, ticket))
            self._wake()

    async def close(self) -> None:
        with self._news:
            self._closing = True
            self._news.notify()
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        self._reader.shutdown()
        if self._thread:
            self._thread.join()
        self._engine.submit(self._arrived)
        _send(self._engine.fail_all("the backbone was closed"))

    def _read(self) -> None:
        """Prepare all that has arrived, which may have come together or be with the last batch already. Of a crowd the
        first are handed on before the last are read."""
        while jobs := self._next_unread():
            self._engine.prepare(jobs)
            with self._news:
                self._arrived.extend(jobs)
                self._wake()

    def _next_unread(self) -> list[Job]:
        """None when all have been read: whoever comes later wakes the reader again."""
        with self._news:
            jobs = [self._unread.popleft() for _ in range(min(READ_AT_ONCE, len(self._unread)))]
            self._reading = bool(jobs)
        return jobs

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jade-local-backbone", daemon=True)
            self._thread.start()
        self._news.notify()

    def _run(self) -> None:
        self._settle_in()
        while self._take_in():
            _send(_guarded_step(self._engine))

    def _take_in(self) -> bool:
        """Hand new arrivals to the engine; wait for some when it is idle. False when it is time to end."""
        with self._news:
            while not (self._arrived or self._updates or self._closing or self._engine.busy):
                self._news.wait()
            jobs, updates = list(self._arrived), list(self._updates)
            self._arrived.clear()
            self._updates.clear()
        # Without the lock: whoever hands work in meanwhile must not wait for the engine.
        if jobs:
            self._engine.submit(jobs)
        for apply, ticket in updates:
            self._engine.update(apply, ticket)
        return not self._closing


def _guarded_step(engine: Engine) -> list[Outcome]:
    """An error of the engine itself must not leave callers waiting for ever."""
    try:
        with OF_THIS_PROCESS.step():
            return engine.step()
    except Exception as error:
        return engine.fail_all(f"the local engine failed: {type(error).__name__}: {error}")


def _settle(outcomes: Iterable[Outcome]) -> None:
    here = asyncio.get_running_loop()
    for ticket, value in outcomes:
        if ticket.loop is here:
            ticket.settle(value)


def _send(outcomes: Iterable[Outcome]) -> None:
    """Settle tickets in their own loops, with one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, group in by_loop.items():
        with contextlib.suppress(RuntimeError):  # a loop that was closed has nobody left who waits
            loop.call_soon_threadsafe(_settle, group)
