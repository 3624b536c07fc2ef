"""Waiting for what must happen, however slow the machine is, and processes that never outlive their test.

A test waits for a condition, never for a time. The limit here only ends what would never happen.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PATIENCE_SECONDS = 300.0


def until(happened: Callable[[], Any]) -> None:
    """Returns as soon as it has happened."""
    gives_up = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < gives_up, f"did not happen within {PATIENCE_SECONDS:g} s"
        time.sleep(0.01)


@contextmanager
def running(command: Sequence[Any], *, measured: bool = True, **how: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards, whatever happens. Its pipes are text.

    One that shall be interrupted must not be `measured`: coverage takes a lock in Python code at every call, and hangs
    for ever when a KeyboardInterrupt falls between the taking and the giving back.
    """
    environment = {**os.environ, **how.pop("env", {})}
    if not measured:
        environment = {name: value for name, value in environment.items() if not name.startswith("COV")}
    arguments = [str(argument) for argument in command]
    with subprocess.Popen(arguments, env=environment, text=True, encoding="utf-8", **how) as process:
        try:
            yield process
        finally:
            process.kill()
