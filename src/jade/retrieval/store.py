"""Passages on disk: one JSON object a line, and an array that says where each line starts.

Both are mapped, so opening costs nothing and memory holds only what was looked at. The file of passages is itself
a corpus that `jade index` reads.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from jade.types import Passage

PASSAGES = "passages.jsonl"
STARTS = "passages.starts.npy"
ROWS_KEPT = 8192


class PassageWriter:
    """Writes passages in order and gives each an id that no other has; `uses` are ids given elsewhere before."""

    def __init__(self, folder: Path, uses: dict[str, int] | None = None) -> None:
        self._folder = folder
        self._file = (folder / PASSAGES).open("wb")
        self._starts = [0]
        self._uses = {} if uses is None else uses
        self.num_renamed = 0

    def add(self, passage: Passage) -> None:
        row = {"id": self._unused(passage.id), "title": passage.title, "text": passage.text, "source": passage.source}
        if row["id"] != passage.id:
            self.num_renamed += 1
            row["own"] = passage.id
        line = json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n"
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def _unused(self, wanted: str) -> str:
        free = wanted
        while free in self._uses:
            self._uses[wanted] += 1
            free = f"{wanted}~{self._uses[wanted]}"
        self._uses[free] = 1
        return free

    def __enter__(self) -> PassageWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        np.save(self._folder / STARTS, np.array(self._starts, np.int64))


class PassageStore:
    """Reads passages by their position."""

    def __init__(self, folder: Path) -> None:
        self._starts = np.load(folder / STARTS, mmap_mode="r")
        with (folder / PASSAGES).open("rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Rollouts of a question find the same passages again and again; and equal texts that are one are compared fast.
        self._row = lru_cache(maxsize=ROWS_KEPT)(self._read)

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def is_whole(self) -> bool:
        """Whether the array of starts ends where the file of passages does."""
        return int(self._starts[-1]) == len(self._lines)

    def passage(self, row: int, score: float = 0.0) -> Passage:
        return _passage(self._row(row), score)

    def as_read(self, row: int) -> Passage:
        """The passage under the id that its document gave it, before it was renamed to be unique here."""
        fields = self._row(row)
        return _passage(fields | {"id": fields.get("own", fields["id"])})

    def __iter__(self) -> Iterator[Passage]:
        # Past the cache: a walk over all passages would drop from it what searches ask for.
        for row in range(len(self)):
            yield _passage(self._read(row))

    def _read(self, row: int) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self._lines[self._starts[row] : self._starts[row + 1]])
        return fields

    def close(self) -> None:
        self._lines.close()


def _passage(fields: dict[str, Any], score: float = 0.0) -> Passage:
    return Passage(fields["id"], fields["title"], fields["text"], fields["source"], score)
