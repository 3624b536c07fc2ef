"""Writing into an index folder so that it is whole at every moment, whatever is interrupted.

New files are made in a hidden folder inside, renamed to their own name when they are finished, and become the index
when the new manifest is renamed over the old one. One writer at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from jade.errors import ConfigError, IndexUnusable
from jade.retrieval.manifest import DATA_FOLDER, MANIFEST, Manifest, manifest_text, signed

UNFINISHED = ".unfinished-"
LOCK = ".lock"


@contextmanager
def writing(out: Path) -> Iterator[Path]:
    """A fresh folder for new files inside `out`; it is gone afterwards unless it was published."""
    _claim(out)
    with (out / LOCK).open("a") as lock:
        _lock(lock.fileno(), out)
        for leftover in out.glob(f"{UNFINISHED}*"):  # of a writer that was killed: it would still hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        folder = out / f"{UNFINISHED}{os.getpid()}"
        try:  # before the folder is there: an interrupt between the two would leave it behind
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish(out: Path, folder: Path, manifest: Manifest) -> Manifest:
    """Make a finished folder the index, then remove what it replaces."""
    manifest = _with_unused_name(out, manifest)
    folder.rename(out / manifest.data)
    draft = out / f"{UNFINISHED}{MANIFEST}"
    # On the disk before it is renamed: after a power cut the name must not stand for an empty file.
    with draft.open("w", encoding="utf-8") as file:
        file.write(manifest_text(manifest))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(out / MANIFEST)
    for older in out.iterdir():
        if DATA_FOLDER.fullmatch(older.name) and older.name != manifest.data:
            shutil.rmtree(older, ignore_errors=True)
    return manifest


def _with_unused_name(out: Path, manifest: Manifest) -> Manifest:
    """The same index made again needs another name beside the old one, which may be damaged or in use."""
    number, name = 1, manifest.data
    while (out / name).exists():
        number += 1
        name = f"{manifest.data}-{number}"
    return signed(replace(manifest, data=name))


def _claim(out: Path) -> None:
    """Make the folder, or see that it is ours to write into."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        others = [path.name for path in out.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from None
    foreign = [name for name in others if name != MANIFEST and not DATA_FOLDER.fullmatch(name)]
    if foreign:
        raise ConfigError(f"--out {out} holds other files ({foreign[0]}); choose an empty or a new folder")


def _lock(descriptor: int, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system: two writers at once are the user's to avoid
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise IndexUnusable(f"index {out} is being written by another process; wait for it to finish") from None
