"""Corpora of one JSON object a line, plain or gzipped: FlashRAG's `{"id", "contents"}`, with or without a `title`, and
`{"id", "title", "text"}`.

Read line by line, so a corpus may be larger than memory. A broken line is passed over, the others are kept.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path
from typing import Any

from jade.corpus.documents import Document, Limits, NotReadable, Unreadable
from jade.received import whole

MOST_REPORTED = 20
"""Broken lines of one file that are named; the rest are counted."""


def read_jsonl(path: Path, name: str, limits: Limits) -> Iterator[Document | Unreadable]:
    num_broken = 0
    for number, line in enumerate(_lines(path, limits), start=1):
        try:
            if (row := _row(line, name, number)) is not None:
                yield row
        except NotReadable as problem:
            num_broken += 1
            if num_broken <= MOST_REPORTED:
                yield Unreadable(f"{name}:line {number}", str(problem))
    if num_broken > MOST_REPORTED:
        yield Unreadable(name, f"has {num_broken - MOST_REPORTED} more lines that cannot be read")


def _lines(path: Path, limits: Limits) -> Iterator[bytes]:
    """Lines of bounded length: a gzip bomb or a file without line ends stops here."""
    try:
        with _open(path) as file:
            while line := file.readline(limits.row_bytes + 1):
                if len(line) > limits.row_bytes:
                    limit = f"{limits.row_bytes / 1e6:g} MB"
                    raise NotReadable(f"has a line larger than the limit of {limit}; nothing from there on was read")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NotReadable(f"is a damaged gzip file ({error})") from None


def _open(path: Path) -> GzipFile | BufferedReader:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _row(line: bytes, name: str, number: int) -> Document | None:
    if not line.strip():
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"is not JSON ({error})") from None
    if not isinstance(row, dict):
        raise NotReadable("is not a JSON object")
    title, text = _title_and_text(row)
    if not text.strip():
        raise NotReadable("has no text")
    own_id = row.get("id", "")
    own_id = whole(str(own_id)) if isinstance(own_id, (str, int)) else ""
    return Document(name, title, text, place=f"line {number}", own_id=own_id)


def _title_and_text(row: dict[str, Any]) -> tuple[str, str]:
    """FlashRAG's contents are the title, quoted, on the first line and the text below it; a title that stands in a
    field of its own need not stand there again."""
    title = row.get("title")
    title = whole(title) if isinstance(title, str) else ""
    if isinstance(text := row.get("text"), str):
        return title, whole(text)
    if isinstance(contents := row.get("contents"), str):
        contents = whole(contents)
        first, line_end, rest = contents.partition("\n")
        # A first line with nothing below it is the text itself, and not a title without a text.
        heading, below = (first.strip().strip('"'), rest) if line_end and rest.strip() else ("", first)
        return (title, contents) if title.strip() and title.strip().strip('"') != heading else (heading, below)
    raise NotReadable('has neither "contents" nor "text"')
