"""Documents from one file. Whatever is wrong with it comes back as an `Unreadable`, never as an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from jade.corpus.cut import Cutting, cut_passages
from jade.corpus.documents import Document, Limits, NotReadable, Unreadable
from jade.corpus.readers.docx import read_docx
from jade.corpus.readers.html import read_html
from jade.corpus.readers.jsonl import read_jsonl
from jade.corpus.readers.pdf import read_pdf
from jade.corpus.readers.plain import printable, read_markdown, read_text
from jade.types import Passage

Reader = Callable[[Path, str, Limits], Iterator[Document] | Iterator[Document | Unreadable]]

READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".text": read_text,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_jsonl,
}
READERS_VERSION = 5
"""Raised when a reader reads the same file differently, so that what an older one read is read again."""


def reader_of(path: Path) -> Reader | None:
    """The reader for a file name's ending, if there is one."""
    endings = [suffix.lower() for suffix in path.suffixes[-2:]]
    return READERS.get("".join(endings)) or READERS.get(endings[-1] if endings else "")


def read_documents(path: Path, name: str = "", limits: Limits | None = None) -> Iterator[Document | Unreadable]:
    """The documents of one file, each under `name` (the file's own when none is given)."""
    name = name or printable(path.name)
    reader = reader_of(path)
    if reader is None:
        yield Unreadable(name, f"is of no kind that can be read ({', '.join(READERS)})")
        return
    try:
        for item in reader(path, name, limits or Limits()):
            yield item if isinstance(item, Unreadable) or item.text[item.start :].strip() else _empty(item)
    except NotReadable as problem:
        yield Unreadable(name, str(problem))
    except OSError as error:
        yield Unreadable(name, f"cannot be opened ({error.strerror or error})")


def read_passages(
    path: Path, name: str = "", cutting: Cutting | None = None, limits: Limits | None = None
) -> Iterator[list[Passage] | Unreadable]:
    """The passages of one file, a list for every document."""
    for item in read_documents(path, name, limits):
        yield item if isinstance(item, Unreadable) else cut_passages(item, cutting)


def _empty(document: Document) -> Unreadable:
    return Unreadable(document.name, "holds no text")
