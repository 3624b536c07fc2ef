"""The terminal, and what may be written on it.

Documents, models, servers and file names are not ours: their text is shown, never obeyed. Brackets stay brackets, and
control characters, which a terminal would take for orders (colours, titles, cursor moves), become visible marks.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jade.received import inert

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH = 1000
"""Columns where nobody looks at a screen: a line stays a line."""


def foreign(text: str, style: str = "") -> Text:
    """Text that is not ours, to be printed as it is."""
    from rich.text import Text

    return Text(inert(text), style=style)


def open_screen(*, stderr: bool = False) -> Console:
    """Where to print: as wide as the terminal or the notebook, or without folding lines where there is neither."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not (console.is_terminal or console.is_jupyter) and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def tell(console: Console, text: str) -> None:
    """One line of our own, unfolded and without markup: names of files stand in it."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def complain(message: str) -> None:
    """One line on stderr, whatever the message is made of."""
    print(f"jade: {inert(' '.join(message.splitlines()))}", file=sys.stderr)


def print_what_can_be_printed() -> None:
    """Where stdout cannot write a character (a pipe in an old code page), a `?` stands for it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextmanager
def saying_what_is_kept(folder: Path, how: str) -> Iterator[None]:
    """For work that can be gone on with: who stops it is told so, and how, once there is anything to keep."""
    try:
        yield
    except KeyboardInterrupt:
        if folder.exists():
            complain(f"stopped; what was written to {folder} is kept: {how} goes on with it")
        raise


@contextmanager
def stoppable() -> Iterator[None]:
    """For work inside an event loop that never yields to it (loading a model): Ctrl-C ends it, instead of waiting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
