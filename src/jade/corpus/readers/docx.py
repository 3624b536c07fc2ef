"""Word files (.docx): a zip with XML inside. Nothing is unpacked to disk, nothing expands beyond the limit."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

from jade.corpus.documents import Document, Limits, NotReadable
from jade.corpus.readers.plain import read_bytes, title_from

BODY = "word/document.xml"
CORE = "docProps/core.xml"
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
TITLE = "{http://purl.org/dc/elements/1.1/}title"
SPACES = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n"}


def read_docx(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """The paragraphs of a .docx file, tables included, as one document."""
    try:
        with zipfile.ZipFile(BytesIO(read_bytes(path, limits))) as archive:
            body = _tree(archive, BODY, limits)
            core = _tree(archive, CORE, limits) if CORE in archive.namelist() else None
    except (zipfile.BadZipFile, ElementTree.ParseError, KeyError, RuntimeError, ValueError, OSError, EOFError) as error:
        raise NotReadable(f"is not a readable .docx file ({type(error).__name__})") from None
    title = core.findtext(f".//{TITLE}") if core is not None else None
    text = "\n\n".join(filter(None, _paragraphs(body)))
    yield Document(name, (title or "").strip() or title_from(path), text)


def _tree(archive: zipfile.ZipFile, member: str, limits: Limits) -> ElementTree.Element:
    with archive.open(member) as packed:
        data = packed.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise NotReadable(f"unpacks to more than the limit of {limits.file_bytes / 1e6:g} MB")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:  # Word writes neither; entities can expand without end
        raise NotReadable("declares XML entities, which no Word file does")
    return ElementTree.fromstring(data)


def _paragraphs(body: ElementTree.Element) -> list[str]:
    """In the order of the file; one inside another (a text box) ends it, so that nothing is read twice."""
    paragraphs: list[list[str]] = [[]]
    for part in body.iter():
        if part.tag == f"{WORD}p":
            paragraphs.append([])
        elif part.tag == f"{WORD}t":
            paragraphs[-1].append(part.text or "")
        else:
            paragraphs[-1].append(SPACES.get(part.tag, ""))
    return ["".join(pieces).strip() for pieces in paragraphs]
