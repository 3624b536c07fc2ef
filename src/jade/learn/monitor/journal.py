"""The journal of a run: one JSON line for each iteration, measurement, guard event and remark, in order.

A resumed run cuts the journal back to its checkpoint and writes on, so that it reads as if nothing had happened;
TensorBoard is told to forget the same iterations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jade.errors import ConfigError, TraceUnreadable
from jade.learn.ranks import agree, is_first

NAME = "metrics.jsonl"


class Journal:
    """Appends lines; TensorBoard, where asked for, gets the numbers as well. Of several processes the first writes."""

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        self.path = folder / NAME
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        self._make_board = _find_board(folder) if tensorboard and is_first() else None
        self._board: Any = None
        self._first_new = 0
        """The first iteration that may be written again."""

    def write(self, kind: str, iteration: int, figures: Mapping[str, Any]) -> None:
        if not is_first():
            return
        line = json.dumps({"kind": kind, "iteration": iteration, **figures}, ensure_ascii=False)
        with self.path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")
        if self._make_board is not None:
            # Only now is it known where a resumed run begins, which has to be said when the board is opened.
            self._board = self._board or self._make_board(purge_step=self._first_new)
            for name, value in figures.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(f"{kind}/{name}", value, iteration)

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
        if self._board is not None:
            self._board.close()


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


def _find_board(folder: Path) -> Callable[..., Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "learn.tensorboard: the package tensorboard is not installed; pip install 'jade-team[tensorboard]'"
        ) from None
    return partial(SummaryWriter, str(folder / "tensorboard"))
