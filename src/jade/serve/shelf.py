"""Traces in files, found by their byte offset: a small row for each in memory, the trace itself read when wanted.

Files may grow while they are looked at; what was added is indexed with the next look. A look takes a bounded time, so
that the first rows of a large file are there at once and the rest follows. A file that was cut back or replaced (a
resumed run) is read anew. Safe to use from several threads.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from jade.engine.record import dump_trace, trace_from_json
from jade.errors import TraceUnreadable
from jade.serve.rows import Row, read_row
from jade.serve.search import matcher
from jade.types import Trace

LOOK_AGAIN_SECONDS = 1.0
LOOK_SECONDS = 0.25
"""How long one look goes on taking in new lines."""
READ_BYTES = 1 << 20
NUM_SEARCHES_KEPT = 16


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file of traces, with the part of the run it stands for and the dataset where a question names none."""

    path: Path
    part: str = ""
    dataset: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it was first seen, and how to read it again."""

    text: bytes
    read: Callable[[], bytes]
    part: str = ""
    dataset: str = ""


class Source(Protocol):
    """Where a shelf has its lines from."""

    def look(self) -> Iterator[Line]:
        """The lines that are new since the last look. Raises LinesGone when old ones have changed."""
        ...


class LinesGone(Exception):
    """What was read before is no longer there."""


@dataclass(slots=True)
class _Reading:
    file: TraceFile
    offset: int = 0
    inode: int = 0


class Files:
    """The lines of files that are listed anew at every look, in order."""

    def __init__(self, list_files: Callable[[], Sequence[TraceFile]]) -> None:
        self._list_files = list_files
        self._readings: dict[Path, _Reading] = {}

    def look(self) -> Iterator[Line]:
        for file in self._list_files():
            reading = self._readings.setdefault(file.path, _Reading(file))
            yield from self._new_lines(reading)

    def _new_lines(self, reading: _Reading) -> Iterator[Line]:
        path, part, dataset = reading.file.path, reading.file.part, reading.file.dataset
        try:
            stat = path.stat()
            if stat.st_size < reading.offset or (reading.offset and stat.st_ino != reading.inode):
                # All files, not this one: rows are known by their place in the list of all.
                self._readings.clear()
                raise LinesGone
            if stat.st_size == reading.offset:
                return
            reading.inode = stat.st_ino
            with path.open("rb", buffering=READ_BYTES) as file:
                file.seek(reading.offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return  # still being written
                    start, reading.offset = reading.offset, reading.offset + len(line)
                    yield Line(line, _reader(path, start, len(line)), part, dataset)
        except OSError as error:
            raise TraceUnreadable(f"{path}: {error.strerror or error}") from None


def _reader(path: Path, offset: int, length: int) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise TraceUnreadable(f"{path}: {error.strerror or error}") from None

    return read


class Recent:
    """The latest traces that were handed in, in memory; they become lines only when somebody looks."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._traces: OrderedDict[int, Trace] = OrderedDict()
        self._num_added = 0
        self._num_seen = 0
        self._dropped = False

    def add(self, trace: Trace) -> None:
        self._traces[self._num_added] = trace
        self._num_added += 1
        if len(self._traces) > self._keep:
            self._traces.popitem(last=False)
            self._dropped = True

    def look(self) -> Iterator[Line]:
        if self._dropped:
            self._dropped, self._num_seen = False, 0
            raise LinesGone
        fresh = [(number, trace) for number, trace in list(self._traces.items()) if number >= self._num_seen]
        for number, trace in fresh:
            self._num_seen = number + 1
            yield Line(_line(trace), partial(_line, trace))


def _line(trace: Trace) -> bytes:
    return f"{dump_trace(trace)}\n".encode()


@dataclass
class Shelf:
    """The traces of one run."""

    source: Source
    rows: list[Row] = field(default_factory=list)
    _readers: list[Callable[[], bytes]] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _found: OrderedDict[tuple[str, int], frozenset[int]] = field(default_factory=OrderedDict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _pending: Iterator[Line] | None = None
    _looked: float = -LOOK_AGAIN_SECONDS

    @property
    def is_complete(self) -> bool:
        """Whether the last look saw everything there was."""
        return self._pending is None

    def look(self, *, at_once: bool = False, to_the_end: bool = False) -> list[Row]:
        """The rows known so far; `at_once` looks for new ones even if the last look was just now."""
        deadline = math.inf if to_the_end else time.monotonic() + LOOK_SECONDS
        with self._lock:
            if self.is_complete and (at_once or time.monotonic() - self._looked >= LOOK_AGAIN_SECONDS):
                self._pending = self.source.look()
            while not self._take_in(deadline):
                self._clear()
                self._pending = self.source.look()
            return self.rows

    def trace(self, key: str) -> Trace:
        """One trace, read now."""
        return trace_from_json(self._data(key))

    def place(self, key: str) -> int:
        """Where in the list a key stands."""
        if key not in self._places:
            self.look(to_the_end=True)
        return self._places[key]

    def find(self, query: str) -> frozenset[int]:
        """Places of the traces whose text holds every word of the query, whatever its case."""
        with self._lock:
            asked = (query, len(self.look()))  # with more lines it is another question
            if asked not in self._found:
                self._found[asked] = frozenset(self._search(query.split()))
                if len(self._found) > NUM_SEARCHES_KEPT:
                    self._found.popitem(last=False)
            return self._found[asked]

    def _search(self, words: Sequence[str]) -> Iterator[int]:
        holds = matcher(words)
        return (place for place, read in enumerate(self._readers) if holds(read()))

    def _take_in(self, deadline: float) -> bool:
        """Add what the look has brought so far; False when what was read is gone, and all is to be read anew."""
        try:
            for line in self._pending or ():
                self._add(line)
                if time.monotonic() > deadline:
                    return True
        except LinesGone:
            return False
        except TraceUnreadable:
            # What has raised is at its end; kept, it would look like a file that was read whole.
            self._pending = None
            raise
        if self._pending is not None:
            self._pending, self._looked = None, time.monotonic()
        return True

    def _add(self, line: Line) -> None:
        row = read_row(line.text, line.part, line.dataset)
        row.key = _unused(row.key, self._places)
        self._places[row.key] = len(self.rows)
        self.rows.append(row)
        self._readers.append(line.read)

    def _clear(self) -> None:
        self.rows, self._readers, self._places = [], [], {}
        self._found.clear()

    def _data(self, key: str) -> dict[str, Any]:
        with self._lock:
            line = self._readers[self.place(key)]()
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceUnreadable(f"trace {key}: not JSON: {error}") from None
        if not isinstance(data, dict):
            raise TraceUnreadable(f"trace {key}: not a trace")
        return data


def _unused(key: str, taken: dict[str, int]) -> str:
    """The key itself, or with a number when a trace of this id was there before."""
    number, fresh = 1, key
    while fresh in taken:
        number += 1
        fresh = f"{key}~{number}"
    return fresh
