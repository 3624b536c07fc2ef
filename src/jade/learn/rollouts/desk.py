"""What a crew's own process does: it answers what the learner asks, until nobody asks any more.

It ends when the learner's end of its pipe does, however that came about, so that none is left behind by one that was
killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from jade.config import Config, SamplingConfig
from jade.engine.rollout import Job, rollout
from jade.errors import BackboneFailed, JadeError
from jade.learn.rollouts.sampler import Learns
from jade.learn.rollouts.shelf import Handle, Layout, Place, Reader, open_handle
from jade.team.crew import Crew, open_crew
from jade.types import Trace

CANCEL = "cancel"
AT_ONCE = 16
"""Traces that travel together: what they share is written once."""

Tell = Callable[[Any], None]


def live(config: Config, folder: Path, pipe: Connection) -> None:
    """The other process, from beginning to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner says when it is over
    os.chdir(folder)
    asyncio.run(_serve(config, pipe))


async def _serve(config: Config, pipe: Connection) -> None:
    """Answer until nobody asks any more."""
    requests: asyncio.Queue[tuple[int, str, tuple[Any, ...]] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_listen, args=(pipe, loop, requests), daemon=True).start()
    answers = _Answers(pipe)
    working: dict[int, asyncio.Task[None]] = {}
    try:
        async with open_crew(config) as crew:
            desk = _Desk(crew)
            while (request := await requests.get()) is not None:
                number, what, given = request
                if what == CANCEL:
                    if number in working:
                        working[number].cancel()
                    continue
                work = partial(getattr(desk, what), partial(answers.give_part, number), *given)
                working[number] = task = asyncio.create_task(answers.give(number, work))
                task.add_done_callback(partial(_done_with, working, number))
            requests.put_nowait(None)  # nobody asks any more, nor waits for what may yet fail here
            for task in working.values():
                task.cancel()
            await asyncio.gather(*working.values(), return_exceptions=True)
    except Exception as error:  # what cannot be opened is the answer to whatever was asked first
        await answers.fail_all(requests, error)


def _done_with(working: dict[int, asyncio.Task[None]], number: int, task: asyncio.Task[None]) -> None:
    working.pop(number, None)


def _listen(pipe: Connection, loop: asyncio.AbstractEventLoop, requests: asyncio.Queue[Any]) -> None:
    try:
        while (request := pipe.recv()) is not None:
            loop.call_soon_threadsafe(requests.put_nowait, request)
    except (EOFError, OSError):
        return
    finally:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(requests.put_nowait, None)


class _Desk:
    """What may be asked for, by name; `tell` gives a part of the answer."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._reader = Reader()

    async def ready(self, tell: Tell) -> None:
        return None

    async def open(self, tell: Tell, handle: Handle) -> None:
        """Whether this process can: else it fails."""
        open_handle(handle)

    async def roll_out(self, tell: Tell, jobs: Sequence[Job], sampling: SamplingConfig, concurrency: int) -> None:
        """Traces go as they come: hundreds at the end would keep both processes from the next thing."""
        done: dict[int, Trace] = {}

        def note(position: int, trace: Trace) -> None:
            done[position] = trace
            if len(done) == AT_ONCE:
                tell(done)
                done.clear()

        await rollout(jobs, replace(self._crew, sampling=sampling), concurrency=concurrency, on_trace=note)
        tell(done)

    async def learn(self, tell: Tell, place: Place | None, layout: Layout, dtype: torch.dtype, version: int) -> None:
        shared = self._crew.cast.shared
        if isinstance(shared, Learns):
            await shared.update_weights(self._reader.read(place, layout, dtype), version)
            self._reader.done()


class _Answers:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def give(self, number: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self._send(number, True, await work(), None)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._send(number, True, None, error)

    def give_part(self, number: int, part: Any) -> None:
        self._send(number, False, part, None)

    async def fail_all(self, requests: asyncio.Queue[Any], error: Exception) -> None:
        while (request := await requests.get()) is not None:
            self._send(request[0], True, None, error)

    def _send(self, number: int, is_whole: bool, answer: Any, error: Exception | None) -> None:
        known = error is None or isinstance(error, JadeError)
        # Errors of libraries may not survive the way through a pipe; their words do.
        plain = error if known else BackboneFailed(f"the rollouts failed: {type(error).__name__}: {error}")
        try:
            self._pipe.send((number, is_whole, answer, plain))
        except OSError:
            return  # nobody listens any more
