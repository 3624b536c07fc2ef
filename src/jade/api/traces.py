"""Traces from Python: looked at in a terminal or a notebook, written to a file and read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jade.types import Trace


def show(trace: Trace, *, everything: bool = False) -> None:
    """Print a trace: the tree of its steps, the answer, what it rests on and what it cost. `everything` adds the text
    of every call and every passage that was read."""
    from jade.screen.answer import print_answer

    print_answer(trace, everything=everything)


def append_traces(file: str | Path, traces: Iterable[Trace]) -> None:
    """Add traces to a file, where `jade view` and `read_traces` find them."""
    from jade.engine import record

    record.append_traces(Path(file), traces)


def read_traces(file: str | Path) -> Iterator[Trace]:
    """The traces of a file, one by one."""
    from jade.engine import record

    return record.read_traces(Path(file))
