"""Telling a waiting person what is being fetched, and how far it is. Quiet unless standard error is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Given a task's name and its size in bytes (None: unknown), a block in which the bytes done so far are reported."""


@contextlib.contextmanager
def terminal_progress(task: str, num_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error; nothing at all where that is no terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    size = [DownloadColumn()] if num_bytes else []
    console = Console(file=sys.stderr)
    with Bar(
        TextColumn("{task.description}"), BarColumn(), *size, TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        row = bar.add_task(escape(task), total=num_bytes)
        yield lambda done: bar.update(row, completed=min(done, num_bytes) if num_bytes else done)


@contextlib.contextmanager
def no_progress(task: str, num_bytes: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda done: None
