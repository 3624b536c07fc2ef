"""A run in other processes, seen from this one: what its journal gains is shown as it comes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jade.learn.guard import Alarm
from jade.learn.monitor.journal import NAME
from jade.learn.monitor.show import Spectator

POLL_SECONDS = 0.3
Row = dict[str, Any]


@contextmanager
def watching(folder: Path, spectator: Spectator, total: int) -> Iterator[None]:
    """Show what happens in the folder while the block runs."""
    ended = threading.Event()
    reader = Reader(folder / NAME)

    def look() -> None:
        while not ended.wait(POLL_SECONDS):
            reader.show(spectator, total)

    watcher = threading.Thread(target=look, name="jade-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        reader.show(spectator, total)


class Reader:
    """Reads on from where the journal ended. A resumed run cuts its journal back: then from there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = path.stat().st_size if path.is_file() else 0

    def show(self, spectator: Spectator, total: int) -> None:
        for row in self._news():
            show = KINDS.get(row.pop("kind"))
            if show is not None:
                show(spectator, row.pop("iteration"), total, row)

    def _news(self) -> Iterator[Row]:
        if not self._path.is_file():
            return
        self._seen = min(self._seen, self._path.stat().st_size)
        with self._path.open("rb") as file:
            file.seek(self._seen)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._seen += len(line)
                # Cut back and longer again since the last look, the journal has another line here: its rest is no row.
                with suppress(ValueError):
                    yield json.loads(line)


def _iteration(spectator: Spectator, number: int, total: int, row: Row) -> None:
    spectator.iteration(number, total, row)


def _dev(spectator: Spectator, number: int, total: int, row: Row) -> None:
    spectator.dev(number, row)


def _guard(spectator: Spectator, number: int, total: int, row: Row) -> None:
    spectator.alarm(number, Alarm(row["event"], row["detail"]), row["back_to"], row["scale"])


def _mind(spectator: Spectator, number: int, total: int, row: Row) -> None:
    spectator.remark(number, row["detail"])


KINDS: dict[str, Callable[[Spectator, int, int, Row], None]] = {
    "iteration": _iteration,
    "dev": _dev,
    "guard": _guard,
    "mind": _mind,
}
