"""What an index folder says of itself, and whether the folder is as it says.

    DIR/manifest.json     format, settings, counts, and size and checksum of every file below
    DIR/data-<checksum>/  the files

A new index is written beside the old one inside DIR, and becomes the index when its manifest is renamed over the old
manifest: one atomic step. Whoever opens DIR at any time, or after a crash, finds one whole index.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from jade.errors import IndexUnusable

FORMAT = 1
"""Raised when a reader of the old form could not read the new one."""
MANIFEST = "manifest.json"
DATA_FOLDER = re.compile(r"data-[0-9a-f]{16}(-[0-9]+)?")
FILE_NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)?[A-Za-z0-9_-][A-Za-z0-9._-]*")
SMALL_BYTES = 1_000_000
"""Files up to this size are checked byte for byte whenever an index is opened."""
REMEDY = "build it again with `jade index PATH --out {folder} --fresh`"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file must be."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    data: str
    """The folder that holds the files."""
    settings: dict[str, Any]
    """How documents were read and cut; an index made with others shares no passages with this one."""
    counts: dict[str, int]
    parts: dict[str, dict[str, Any]]
    """The ways to search it, by name, with their settings."""
    files: dict[str, FileRecord]
    format: int = FORMAT
    checksum: str = field(default="")
    """Of everything above."""


def describe(folder: Path, settings: dict[str, Any], counts: dict[str, int], parts: dict[str, Any]) -> Manifest:
    """The manifest of a folder of finished files."""
    files = {
        path.relative_to(folder).as_posix(): FileRecord(path.stat().st_size, sha256_of(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content = {name: asdict(record) for name, record in files.items()}
    data = f"data-{_digest([settings, counts, parts, content])[:16]}"
    return signed(Manifest(data, settings, counts, parts, files))


def signed(manifest: Manifest) -> Manifest:
    return replace(manifest, checksum=_signature(manifest))


def manifest_text(manifest: Manifest) -> str:
    return json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n"


def _typed(folder: Path) -> str:
    """A folder as one word of a command line."""
    return shlex.quote(str(folder))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index folder; IndexUnusable when there is none that this code understands."""
    if not folder.is_dir():
        raise IndexUnusable(f"index {folder}: no such folder; make it with `jade index PATH --out {_typed(folder)}`")
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
        found = fields["format"]
        if isinstance(found, int) and found > FORMAT:
            raise IndexUnusable(
                f"index {folder} has format {found}, this JADE reads up to {FORMAT}: use a newer JADE, or "
                + REMEDY.format(folder=_typed(folder))
            )
        fields["files"] = {name: FileRecord(**record) for name, record in fields["files"].items()}
        manifest = Manifest(**fields)
        if manifest.checksum != _signature(manifest) or not _names_are_safe(manifest):
            raise ValueError("its checksum is wrong")
    except FileNotFoundError:
        raise IndexUnusable(
            f"index {folder} has no {MANIFEST}, so it is no index; if these are your documents, make one of them with "
            f"`jade index {_typed(folder)} --out index` and give that"
        ) from None
    except OSError as error:
        raise IndexUnusable(f"index {folder}: {MANIFEST} cannot be read ({error.strerror or error})") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise damaged(folder, f"{MANIFEST} is not what was written") from None
    return manifest


def check_files(folder: Path, manifest: Manifest, *, whole: bool = False) -> None:
    """Sizes of all files and contents of the small ones; with `whole`, contents of all."""
    for name, record in manifest.files.items():
        path = folder / manifest.data / name
        try:
            num_bytes = path.stat().st_size
        except OSError:
            raise damaged(folder, f"{name} is missing") from None
        if num_bytes != record.num_bytes:
            raise damaged(folder, f"{name} has {num_bytes:,} bytes instead of {record.num_bytes:,}")
        if (whole or num_bytes <= SMALL_BYTES) and sha256_of(path) != record.sha256:
            raise damaged(folder, f"{name} is not what was written (its sha256 differs)")


def damaged(folder: Path, what: str) -> IndexUnusable:
    return IndexUnusable(f"index {folder} is damaged: {what}; {REMEDY.format(folder=_typed(folder))}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names_are_safe(manifest: Manifest) -> bool:
    """Whether all files lie inside the folder, whoever wrote the manifest."""
    return bool(DATA_FOLDER.fullmatch(manifest.data)) and all(map(FILE_NAME.fullmatch, manifest.files))


def _signature(manifest: Manifest) -> str:
    return _digest({**asdict(manifest), "checksum": ""})


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
