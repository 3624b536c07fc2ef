"""Files of every kind, made in a few lines."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WORD_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> Path:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def jsonl(rows: Sequence[Any]) -> bytes:
    """Rows as lines; a string stands for a line that is written as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def jsonl_gz(rows: Sequence[Any]) -> bytes:
    return gzip.compress(jsonl(rows), mtime=0)


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """A PDF of one line a page, in the form that every reader of the format must accept."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    data, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        starts.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{start:010d} 00000 n \n" for start in starts)
    size = len(objects) + 1
    trailer = f"<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R >>"
    return (
        data + f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n{trailer}\nstartxref\n{len(data)}\n%%EOF".encode()
    )


def docx(path: Path, paragraphs: Sequence[str], title: str = "", prologue: str = "") -> Path:
    return word_file(path, "".join(map(paragraph, paragraphs)), title=title, prologue=prologue)


def paragraph(text: str, more: str = "") -> str:
    """A paragraph's XML, with more after its text."""
    return f"<w:p><w:r><w:t>{escape(text)}</w:t>{more}</w:r></w:p>"


def row(*cells: str) -> str:
    """A table of one row; each cell is the XML of its paragraphs."""
    return f"<w:tbl><w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr></w:tbl>"


def word_file(
    path: Path,
    body: str,
    title: str = "",
    prologue: str = "",
    notes: str = "",
    member: str = "document.xml",
    namespace: str = WORD_NAMESPACE,
) -> Path:
    """A .docx file whose body, and whose footnotes, are the XML given."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            f"word/{member}",
            f'{prologue}<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>',
        )
        if notes:
            archive.writestr("word/footnotes.xml", f'<w:footnotes xmlns:w="{namespace}">{notes}</w:footnotes>')
        if title:
            archive.writestr(
                "docProps/core.xml", f'<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></c>'
            )
    return path
