"""Server-sent events: progress while the team works, then the end. A client that leaves stops the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse

from jade.engine.events import Event
from jade.serve.desk import Desk, Request
from jade.serve.problems import Problem, to_json
from jade.types import Trace

T = TypeVar("T")
QUIET_SECONDS = 15.0
"""After this much silence a comment is sent, so that nobody in between takes the connection for dead."""


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def sse(data: Any, name: str = "") -> str:
    """One event. JSON in ASCII holds no line break, so it is one data line."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {to_json(data)}\n\n"


async def progress(desk: Desk, request: Request) -> AsyncIterator[Event | Trace | Problem | None]:
    """All that is heard of a question, in order; its trace or its problem last. None is a sign of life."""
    heard: asyncio.Queue[Event | Trace | Problem] = asyncio.Queue()
    task = asyncio.create_task(_work(desk, request, heard))
    try:
        while True:
            try:
                # To give up waiting takes nothing out of the queue.
                async with asyncio.timeout(QUIET_SECONDS):
                    item = await heard.get()
            except TimeoutError:
                yield None
                continue
            yield item
            if isinstance(item, (Trace, Problem)):
                return
    finally:  # also where the stream was closed from outside, because its client has gone
        await _stop(task)


async def _work(desk: Desk, request: Request, heard: asyncio.Queue[Event | Trace | Problem]) -> None:
    try:
        heard.put_nowait(await desk.work(request, heard.put_nowait))
    except Problem as problem:
        heard.put_nowait(problem)
    except Exception as error:
        heard.put_nowait(Problem(500, "internal", f"internal error: {type(error).__name__}"))


async def unless_gone(http: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """Do the work while the client waits for it; give it up when the client hangs up."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_hang_up(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():  # nobody reads this answer; the count of requests shows it
            raise Problem(499, "client_gone", "the client hung up")
        return task.result()
    finally:
        await _stop(task)
        await _stop(gone)


async def _hang_up(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _stop(task: asyncio.Task[Any]) -> None:
    """Cancel and wait until it is really over; how it ended is its owner's business."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
