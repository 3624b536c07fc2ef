"""What comes out of a file: documents, or a word on why there are none.

A document keeps what it takes to point back at its place: the file's name, the line or page, and the text whose
characters are counted. What cannot be read is a value, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its title. `text[start:]` is the body; what stands before it is title matter."""

    name: str
    """The file as the user knows it, relative to the folder that was given."""
    title: str
    text: str
    start: int = 0
    place: str = ""
    """Where in the file the text stands, for files that hold several ("line 17")."""
    pages: tuple[int, ...] = ()
    """Where each page starts in the text, for formats that have pages."""
    own_id: str = ""
    """The id that the corpus itself gives, for rows of a JSONL file."""


class Unreadable(NamedTuple):
    """A file, or a part of one, that was passed over."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one file may hold before it is passed over instead of read."""

    file_bytes: int = 50_000_000
    """Of a prose file, which is read whole; also of what is packed inside it."""
    row_bytes: int = 10_000_000
    """Of one line of a JSONL file, which is read line by line and may be of any length."""


class NotReadable(Exception):
    """Raised by readers inside this package; `read_documents` turns it into an `Unreadable`."""
