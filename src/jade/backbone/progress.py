"""Telling a waiting person what is being done, and how far it is: a bar on a terminal, one plain line elsewhere."""

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
    """A bar on standard error, or its name alone where that is no terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        print(f"{task} …", file=sys.stderr, flush=True)
    size = [DownloadColumn()] if num_bytes else []
    with Bar(
        TextColumn("{task.description}"), BarColumn(), *size, TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        row = bar.add_task(escape(task), total=num_bytes)
        yield lambda done: bar.update(row, completed=min(done, num_bytes) if num_bytes else done)


@contextlib.contextmanager
def no_progress(task: str, num_bytes: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda done: None
