"""Word files (.docx): a zip with XML inside. Nothing is unpacked to disk, nothing expands beyond the limit.

Elements go by their local names: Word's strict form has another namespace, and formulas have one of their own.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

from jade.corpus.documents import Document, Limits, NotReadable
from jade.corpus.readers.plain import read_bytes, title_from

BODY = re.compile(r"word/document\d*\.xml")
"""Some programs number it."""
NOTES = ("word/footnotes.xml", "word/endnotes.xml")
CORE = "docProps/core.xml"
TITLE = "{http://purl.org/dc/elements/1.1/}title"
SAID_TWICE = frozenset({"Fallback", "moveFrom"})
"""A text box again for old programs, and a text where it stood before it was moved."""
SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
BREAK = "\n\n"


def read_docx(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """The paragraphs of a .docx file, rows of tables and notes included, as one document."""
    try:
        with zipfile.ZipFile(BytesIO(read_bytes(path, limits))) as archive:
            members = archive.namelist()
            body = next(filter(BODY.fullmatch, members), "word/document.xml")
            texts = [_text(_tree(archive, part, limits)) for part in (body, *NOTES) if part in (body, *members)]
            core = _tree(archive, CORE, limits) if CORE in members else None
    except NotReadable:
        raise
    except Exception as error:  # every way to pack has errors of its own
        raise NotReadable(f"is not a readable .docx file ({type(error).__name__})") from None
    title = core.findtext(f".//{TITLE}") if core is not None else None
    yield Document(name, (title or "").strip() or title_from(path), BREAK.join(filter(None, texts)))


def _tree(archive: zipfile.ZipFile, member: str, limits: Limits) -> ElementTree.Element:
    with archive.open(member) as packed:
        data = packed.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise NotReadable(f"unpacks to more than the limit of {limits.file_bytes / 1e6:g} MB")
    if b"\0" in data:  # in two bytes a letter, what is looked for below would not be found
        raise NotReadable("is not written in UTF-8, as every Word file is")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:  # Word writes neither; entities can expand without end
        raise NotReadable("declares XML entities, which no Word file does")
    return ElementTree.fromstring(data)


def _text(root: ElementTree.Element) -> str:
    """Paragraphs and rows, each after a blank line; a cell of one paragraph stands beside its neighbours."""
    pieces: list[str] = []
    beside: set[ElementTree.Element] = set()
    for part, opens in _walk(root):
        kind = _kind(part)
        if kind == "tc" and opens:
            held = [child for child in part if _kind(child) in ("p", "tbl")]
            beside.update(held[:1] if len(held) == 1 else ())
        elif kind == "p" and part in beside:
            pieces.append(" " if opens else "")
        elif kind in ("p", "tr"):
            pieces.append(BREAK)
        elif opens:
            pieces.append((part.text or "") if kind == "t" else SPACES.get(kind, ""))
    paragraphs = (paragraph.strip() for paragraph in "".join(pieces).split(BREAK))
    return BREAK.join(filter(None, paragraphs))


def _walk(root: ElementTree.Element) -> Iterator[tuple[ElementTree.Element, bool]]:
    """Every element as it opens and as it closes, however deep they lie, without what is said elsewhere as well."""
    waiting = [(root, True)]
    while waiting:
        part, opens = waiting.pop()
        yield part, opens
        if opens:
            waiting.append((part, False))
            waiting.extend((child, True) for child in reversed(part) if _kind(child) not in SAID_TWICE)


def _kind(part: ElementTree.Element) -> str:
    return part.tag.rpartition("}")[2]
