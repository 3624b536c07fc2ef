"""PDF files through pypdf: one document a file, which knows where its pages start."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator
from io import BytesIO
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Any

from jade.corpus.documents import Document, Limits, NotReadable
from jade.corpus.readers.plain import SOFT_HYPHEN, read_bytes, title_from

HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010]\n(?=[^\W\d_])")
AS_LETTERS = {ord(sign): unicodedata.normalize("NFKC", sign) for sign in "ﬀﬁﬂﬃﬄﬅﬆ"} | {ord(SOFT_HYPHEN): ""}
"""Letters that a typesetter drew as one sign are letters again, as in every question about them."""


def read_pdf(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """The text of all pages. Scanned pages have none: JADE reads letters, not pictures."""
    data = read_bytes(path, limits)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it would print is said once, in our own list
    try:
        title, pages = _extract(data, limits)
    except NotReadable:
        raise
    except Exception as error:  # pypdf raises whatever a broken file leads it into
        raise NotReadable(f"is not a readable PDF ({type(error).__name__}: {_first_line(error)})") from None
    if not any(page.strip() for page in pages):
        raise NotReadable("holds no text (scanned pages?)")
    starts = [0]  # pages are joined by a line break, which counts too
    for page in pages[:-1]:
        starts.append(starts[-1] + len(page) + 1)
    yield Document(name, title or title_from(path), "\n".join(pages), pages=tuple(starts))


def _extract(data: bytes, limits: Limits) -> tuple[str, list[str]]:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise NotReadable("is protected by a password")
    pages: list[str] = []
    num_chars = 0
    for page in reader.pages:
        pages.append(unwrap(page.extract_text()))
        num_chars += len(pages[-1])
        if num_chars > limits.file_bytes:
            raise NotReadable(f"holds more text than the limit of {limits.file_bytes / 1e6:g} MB")
    return _title(reader), pages


def _title(reader: Any) -> str:
    metadata = reader.metadata
    title = metadata.title if metadata else None
    return " ".join(title.split()) if isinstance(title, str) else ""


def unwrap(text: str) -> str:
    """Join what the page broke only to fit its lines, and spell out what was set as one sign; blank lines stay."""
    text = HYPHENATED.sub("", text).translate(AS_LETTERS)
    lines = [line.strip(" \t\r") for line in text.split("\n")]
    breaks = (" " if line and following else "\n" for line, following in pairwise(lines))
    joined = "".join(chain.from_iterable(zip_longest(lines, breaks, fillvalue="")))
    return joined.encode("utf-8", "replace").decode("utf-8")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:120]
