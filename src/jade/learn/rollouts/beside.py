"""Crews in processes beside the learner's: rollouts with interpreters of their own, at the same time as updates or not.

In one process all would wait for the interpreter's lock more than for the device. Each speaks with the learner through
a pipe; weights go through memory that all have open (`shelf.py`). A process ends when the learner's end of its
pipe does, however that came about, so that none is left behind by one that was killed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from jade.backbone.local.backbone import pick_device, pick_dtype
from jade.config import Config, SamplingConfig
from jade.engine.rollout import Job, rollout
from jade.errors import BackboneFailed, JadeError
from jade.learn.policy import Policy
from jade.learn.rollouts.sampler import Learns, Troupe
from jade.learn.rollouts.shelf import Handle, Layout, Place, Reader, Shelf, open_handle, share
from jade.team.crew import Crew, open_crew
from jade.types import Trace

log = logging.getLogger(__name__)
MEMORY = Path("/dev/shm")
"""Where files are memory, if the system has such a place."""
END_SECONDS = 30.0
"""What a process gets to end by itself."""
LAST_SECONDS = 2.0
"""What one that has hung up gets, so that its code is known."""
CANCEL = "cancel"
AT_ONCE = 16
"""Traces that travel together: what they share is written once."""
PRIORITY, FIRST, SECOND = "CUDA_MPS_CLIENT_PRIORITY", "0", "1"
"""How MPS is told whose kernels go first where two processes share a GPU."""

Tell = Callable[[Any], None]


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
            self._pipe.send((number, what, given))
            return await answer
        except OSError:
            raise self._lost() from None
        except asyncio.CancelledError:
            self._forget(number)
            raise
        finally:
            self._open.pop(number, None)

    def hang_up(self) -> None:
        """Said, since closing would not be heard: the thread that reads still holds this end open."""
        with suppress(OSError):
            self._pipe.send(None)

    def close(self) -> None:
        """When nobody is at the other end any more."""
        self._reader.join()
        self._pipe.close()

    def _forget(self, number: int) -> None:
        try:
            self._pipe.send((number, CANCEL, ()))
        except OSError:
            return  # nobody is there who could go on with it

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


@dataclass(frozen=True)
class Beside(Troupe):
    """The crews in the other processes, as the learner sees them."""

    lines: Sequence[Line]
    shelf: Shelf

    async def roll_out(self, jobs: Sequence[Job], *, concurrency: int) -> list[Trace]:
        traces: dict[int, Trace] = {}
        hands = deal(jobs, len(self.lines))
        share = -(-concurrency // len(self.lines))

        async def hand_to(line: Line, places: Sequence[int]) -> None:
            hand = tuple(jobs[place] for place in places)
            await line.ask(
                "roll_out", hand, self.sampling, share, on_part=lambda part: traces.update(_at(places, part))
            )

        await all_of([hand_to(line, places) for line, places in zip(self.lines, hands, strict=True) if places])
        return [traces[place] for place in range(len(jobs))]

    def lay_out(self, policy: Policy) -> None:
        """The others read what lies there only when they are told to."""
        self.shelf.put(policy)

    async def follow(self, policy: Policy, version: int) -> None:
        shelf = self.shelf
        await all_of(
            [
                line.ask("learn", shelf.place_for(reader), shelf.layout, shelf.dtype, version)
                for reader, line in enumerate(self.lines)
            ]
        )
        shelf.take_name_away()


def deal(jobs: Sequence[Job], num_hands: int) -> list[list[int]]:
    """The places of the jobs that each hand gets. Those of one question stay together: their prompts are the same."""
    hands: list[list[int]] = [[] for _ in range(num_hands)]
    questions = itertools.groupby(range(len(jobs)), key=lambda place: jobs[place].question)
    for hand, (_, places) in zip(itertools.cycle(hands), questions, strict=False):
        hand.extend(places)
    return hands


def _at(places: Sequence[int], part: Mapping[int, Trace]) -> dict[int, Trace]:
    return {places[number]: trace for number, trace in part.items()}


async def all_of(asked: Sequence[Coroutine[Any, Any, Any]]) -> None:
    """Until all have ended, or one has failed and the others are given up."""
    tasks = [asyncio.create_task(one) for one in asked]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stand_back() -> None:
    """The other's kernels are short and many, and each waits behind those of an update that are long: let them go
    first. To be said before this process has touched a GPU; whoever has said otherwise is left in the right."""
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


@asynccontextmanager
async def open_beside(config: Config) -> AsyncIterator[Beside]:
    """Start the processes, wait until their crews are ready, and end them whatever happens."""
    with tempfile.TemporaryDirectory(prefix="jade-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        async with AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(_open_line(config)) for _ in range(num_beside(config))]
            try:
                await all_of([line.ask("ready") for line in lines])
                device = pick_device(config.backbone.device)
                shelf = Shelf(Path(folder), pick_dtype(config.backbone.dtype, device), await _shared(device, lines))
                yield Beside(config.sampling, lines, shelf)
            finally:
                for line in lines:  # so that they end together, ready or not
                    line.hang_up()


async def _shared(device: torch.device, lines: Sequence[Line]) -> torch.device:
    """Whose memory weights are handed on in: the GPU's, if all of them can open it."""
    processor = torch.device("cpu")
    if device.type != "cuda":
        return processor
    try:
        probe = torch.ones(1, device=device)
        await all_of([line.ask("open", share(probe)) for line in lines])
    except (BackboneFailed, RuntimeError) as error:
        log.info("weights go to the processes beside by way of the processor: %s", error)
        return processor
    return device


def num_beside(config: Config) -> int:
    """Processes that make rollouts; 0 where the learner's own does."""
    return max(config.learn.processes, int(config.learn.ahead))


@asynccontextmanager
async def _open_line(config: Config) -> AsyncIterator[Line]:
    """A process that was started, whether it is ready or not, and is ended in the end."""
    processes = multiprocessing.get_context("spawn")  # a device cannot be shared with a fork
    ours, theirs = processes.Pipe()
    process = processes.Process(target=live, args=(config, Path.cwd(), theirs), name="jade-rollouts", daemon=True)
    with _told(FIRST), _undisturbed():
        process.start()
    theirs.close()
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
        plain = error if known else BackboneFailed(f"the rollouts failed: {type(error).__name__}: {error}")
        try:
            self._pipe.send((number, is_whole, answer, plain))
        except OSError:
            return  # nobody listens any more
