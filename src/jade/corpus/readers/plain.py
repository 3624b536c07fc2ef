"""Plain text and Markdown: characters keep the positions they have in the file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from jade.corpus.documents import Document, Limits, NotReadable

FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(\r?\n|\Z)", re.DOTALL)
FRONT_TITLE = re.compile(r"^title:(.*)$", re.MULTILINE)
HEADING = re.compile(r"\s*+#[ \t]++([^\n]+)(?:\n|\Z)")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
SOFT_HYPHEN = "\u00ad"
"""Where a word may be broken to fit its line; pages are full of them, and it is no letter of the word."""
MOST_CONTROL = 0.01
"""Share of control characters above which a file is taken for binary."""


def read_text(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """A .txt file is one document named after the file."""
    yield Document(name, title_from(path), decode(read_bytes(path, limits)))


def read_markdown(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """A .md file is one document; its title is the front matter's, or the first line when that is a heading."""
    text = decode(read_bytes(path, limits))
    title, start = "", 0
    if front := FRONT_MATTER.match(text):
        start = front.end()
        if found := FRONT_TITLE.search(front[1] or ""):
            title = found[1].strip().strip("\"'")
    if heading := HEADING.match(text, start):
        title, start = title or heading[1].rstrip().rstrip("#").strip(), heading.end()
    yield Document(name, title or title_from(path), text, start=start)


def title_from(path: Path) -> str:
    """A file's name, as a title."""
    return printable(path.stem).replace("_", " ").strip()


def printable(name: str) -> str:
    """A file name that can be written as UTF-8, whatever bytes the disk holds."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def read_bytes(path: Path, limits: Limits) -> bytes:
    """A whole file, unless it is larger than the limit."""
    with path.open("rb") as file:
        data = file.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise NotReadable(f"is larger than the limit of {limits.file_bytes / 1e6:g} MB")
    return data


def decode(data: bytes, declared: str = "") -> str:
    """UTF-8, UTF-16 with its mark, the encoding a page declares, or the old Western one; binary data is refused."""
    text = _decoded(data, declared)
    if len(CONTROL.findall(text)) > MOST_CONTROL * len(text):
        raise NotReadable("is not text (control characters; a binary file?)")
    return text


def _decoded(data: bytes, declared: str) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    elif b"\0" in data:
        raise NotReadable("is not text (zero bytes; a binary file?)")
    else:
        encodings = ["utf-8-sig", declared, "cp1252"]
    for encoding in filter(None, encodings):
        try:
            text = data.decode(encoding)
            text.encode()  # a page may declare an encoding in which half of a character can be spelled
        except (UnicodeError, LookupError):
            continue
        return text
    raise NotReadable("is not text (no encoding fits; a binary file?)")
