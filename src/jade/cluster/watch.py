"""A run in other processes, seen from this one: what its journal gains is shown as it comes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jade.learn.guard import Alarm
from jade.learn.monitor.journal import NAME
from jade.learn.monitor.show import Spectator

POLL_SECONDS = 0.3


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
        reader.show(spectator, total)  # what was written since its last look


class Reader:
    """Reads on from where the journal ended. A resumed run cuts its journal back: then from there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = path.stat().st_size if path.is_file() else 0

    def show(self, spectator: Spectator, total: int) -> None:
        for row in self._news():
            kind, number = row.pop("kind"), row.pop("iteration")
            match kind:
                case "iteration":
                    spectator.iteration(number, total, row)
                case "dev":
                    spectator.dev(number, row)
                case "guard":
                    alarm = Alarm(row["event"], row["detail"])
                    spectator.alarm(number, alarm, row["back_to"], row["scale"])
                case "mind":
                    spectator.remark(number, row["detail"])

    def _news(self) -> Iterator[dict[str, Any]]:
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
