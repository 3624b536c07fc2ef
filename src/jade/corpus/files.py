"""Which files are meant when someone points at a folder.

Nothing outside the folder is ever read: links that leave it are listed and passed over, and so is everything
that is not a plain file. Hidden files and folders are left alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jade.corpus.documents import Unreadable
from jade.corpus.read import reader_of
from jade.corpus.readers.plain import printable
from jade.errors import DocumentError

INDEX_DATA = re.compile(r"data-[0-9a-f]{16}(-[0-9]+)?")
"""The folder inside an index that holds its files."""
TRACE_START = re.compile(rb'\{"schema":\d+,"id":"[^"]*","question":\{')
"""How a file of traces begins."""
TRACE_START_BYTES = 1024


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read, the name it goes by in the index, and what tells whether it has changed."""

    name: str
    path: Path
    num_bytes: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Found:
    files: tuple[SourceFile, ...]
    unreadable: tuple[Unreadable, ...]
    num_other: int
    """Files of kinds that are not documents, or that JADE itself has written, passed over without a word each."""


def find_files(paths: Sequence[Path], exclude: Path | None = None) -> Found:
    """All documents under the given files and folders, in the order of their names.

    With one folder, names are relative to it; with several paths, each name starts with its folder's own. A file
    is taken once, however many names lead to it.
    `exclude` is a folder to leave out (an index being written inside the folder that is read).
    """
    files: dict[str, SourceFile] = {}
    unreadable: list[Unreadable] = []
    num_other = 0
    seen: set[str] = set()
    for root in paths:
        prefix = f"{printable(root.resolve().name)}/" if len(paths) > 1 and root.is_dir() else ""
        for path in _under(root, exclude, unreadable):
            real = os.path.realpath(path)  # unlike Path.resolve, it does not raise on links that lead in a circle
            if real in seen:
                continue
            if path != root and reader_of(path) is None:
                num_other += 1
                continue
            name = prefix + printable(path.relative_to(root).as_posix()) if path != root else printable(root.name)
            item = _checked(path, root, _unused(name, files))
            if isinstance(item, Unreadable):
                unreadable.append(item)
            elif path != root and is_ours(path):  # only now, since it opens the file: it is known to be no pipe
                num_other += 1
            else:
                files[item.name] = item
                seen.add(real)
    return Found(tuple(files[name] for name in sorted(files)), tuple(unreadable), num_other)


def _under(root: Path, exclude: Path | None, unreadable: list[Unreadable]) -> Iterator[Path]:
    """Every file below a folder, in a stable order; links to folders are not entered, closed folders are listed."""
    if not root.exists():
        raise DocumentError(f"{root}: no such file or folder")
    if not root.is_dir():
        yield root
        return
    left_out = exclude.resolve() if exclude else None
    for folder, subfolders, names in os.walk(root, onerror=lambda error: unreadable.append(_closed(error, root))):
        here = Path(folder)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if left_out is not None:
            subfolders[:] = [name for name in subfolders if Path(os.path.realpath(here / name)) != left_out]
        yield from (here / name for name in sorted(names) if not name.startswith("."))


def is_ours(path: Path) -> bool:
    """Whether JADE itself has written a file: an index's inside, or traces. Where questions are asked beside their
    documents such files are always there."""
    if INDEX_DATA.fullmatch(path.parent.name) and (path.parent.parent / "manifest.json").is_file():
        return True
    if path.suffix != ".jsonl":
        return False
    try:
        with path.open("rb") as file:
            return TRACE_START.match(file.read(TRACE_START_BYTES)) is not None
    except OSError:
        return False  # its reader says why


def _closed(error: OSError, root: Path) -> Unreadable:
    folder = Path(os.fsdecode(error.filename)).relative_to(root)
    return Unreadable(printable(f"{folder}/"), f"cannot be opened ({error.strerror or error})")


def _checked(path: Path, root: Path, name: str) -> SourceFile | Unreadable:
    """A plain file inside its folder, or why it is passed over. A pipe or a device would never end."""
    try:
        status = path.stat()
    except OSError as error:
        return Unreadable(name, f"cannot be opened ({error.strerror or error})")
    if path != root and path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
        return Unreadable(name, "is a link that leaves the folder")
    if not stat.S_ISREG(status.st_mode):
        return Unreadable(name, "is not a plain file")
    if not os.access(path, os.R_OK):  # no part of its fingerprint: once it is open it would still count as read
        return Unreadable(name, f"cannot be opened ({os.strerror(errno.EACCES)})")
    return SourceFile(name, path, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def _unused(name: str, taken: dict[str, SourceFile]) -> str:
    """The name, or with a number when another given folder has a file of that name."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free
