"""A backbone that is somebody's own function: a prompt goes in, text comes out.

What it writes has no token ids, so a team that speaks through it answers and is measured, but is not trained.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from typing import TypeAlias

from jade.errors import BackboneFailed
from jade.types import Generation, Prompt, Sampling

Speak: TypeAlias = Callable[[Prompt], str] | Callable[[Prompt], Awaitable[str]]
MOST_AT_ONCE = 64


class CalledBackbone:
    """Plain functions are called in threads, many at once; asynchronous ones are awaited."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="model")

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        started = time.perf_counter()
        try:
            # Only called there: an asynchronous function gives its coroutine at once, which is then awaited here.
            text = await asyncio.get_running_loop().run_in_executor(self._threads, self._speak, prompt)
            if isawaitable(text):
                text = await text
        except Exception as error:
            raise BackboneFailed(f"{_name(self._speak)}: {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise BackboneFailed(f"{_name(self._speak)} gave {type(text).__name__}, not text")
        return Generation(text=text, seconds=time.perf_counter() - started)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
