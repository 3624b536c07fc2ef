"""Event loops for callers that have none, or that have one already running, as a notebook does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread, current_thread
from typing import Any, TypeVar

from jade.errors import JadeError

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own. Work can be handed to it from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a script that forgets to close its team still ends.
        self._thread = Thread(target=self._loop.run_forever, name="jade", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for it. Whoever stops waiting (Ctrl-C) stops the work."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Hand in work without waiting for it."""
        # Closed, or Python would warn of a coroutine that nobody awaited.
        if current_thread() is self._thread:
            work.close()
            raise JadeError("a listener or model of this team called it back; hand the question in from another thread")
        if not self._thread.is_alive() or self.is_closed:
            work.close()
            raise JadeError("this team is closed; open it again with jade.open_team")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """End the loop, and what still runs in it. Safe to call twice."""
        if self.is_closed:
            return
        self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    """Cancel what is under way and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, also where a loop is running already."""
    if not _in_a_loop():
        return asyncio.run(work)
    thread = LoopThread()
    try:
        return thread.run(work)
    finally:
        thread.close()


def call_apart(function: Callable[[], T]) -> T:
    """Call what brings an event loop of its own, also where one is running already."""
    if not _in_a_loop():
        return function()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
