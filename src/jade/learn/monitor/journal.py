"""The journal of a run: one JSON line for each iteration, measurement, guard event and remark, in order.

A resumed run cuts the journal back to its checkpoint and writes on, so that it reads as if nothing had happened;
trackers are told where it goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jade.errors import TraceUnreadable
from jade.learn.monitor.trackers import Trackers
from jade.learn.ranks import agree, is_first

NAME = "metrics.jsonl"


class Journal:
    """Appends lines; trackers, where asked for, get the numbers as well. Of several processes the first writes."""

    def __init__(self, folder: Path, trackers: Sequence[str] = ()) -> None:
        self.path = folder / NAME
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        self._trackers = Trackers(folder, trackers if is_first() else ())
        self._first_new = 0
        """The first iteration that may be written again."""

    def write(self, kind: str, iteration: int, figures: Mapping[str, Any]) -> None:
        if not is_first():
            return
        line = json.dumps({"kind": kind, "iteration": iteration, **figures}, ensure_ascii=False)
        with self.path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")
        self._trackers.write(kind, iteration, figures, self._first_new)

    @property
    def num_bytes(self) -> int:
        return agree(self.path.stat().st_size)

    def cut_back(self, num_bytes: int, iteration: int = 0) -> None:
        """Forget what was written behind a checkpoint, which holds all of that iteration and those before it; without a
        checkpoint nothing was written that counts."""
        kept = min(num_bytes, self.num_bytes)
        self._first_new = iteration + 1 if num_bytes else 0
        if is_first():
            os.truncate(self.path, kept)

    def close(self) -> None:
        self._trackers.close()


def read_journal(folder: Path, kind: str | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a run's journal; one that was cut off in writing is passed over."""
    path = folder / NAME
    try:
        # As bytes: what a failure said may hold other line ends, and the last line may be cut off within a character.
        *lines, _ = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceUnreadable(f"{folder} is not a training run: {path}: {error.strerror or error}") from None
    for number, line in enumerate(lines, start=1):
        try:
            row: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise TraceUnreadable(f"{path}, line {number}: not JSON: {error}") from None
        if kind is None or row.get("kind") == kind:
            yield row


def last_of_each(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """After a rollback an iteration stands in the journal twice; the last time counts."""
    return [row for _, row in sorted({row["iteration"]: row for row in rows}.items())]
