"""An index folder, opened: its passages and the ways it can be searched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jade.errors import IndexUnusable
from jade.retrieval.manifest import Manifest, check_files, damaged, read_manifest
from jade.retrieval.store import PassageStore

BM25, DENSE = "bm25", "dense"
SOURCES = "sources.jsonl"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One file that was read: what it was then, and which passages are its own."""

    name: str
    fingerprint: str
    first: int
    """Position of its first passage."""
    num_passages: int
    num_documents: int
    unreadable: list[tuple[str, str]]
    """What could not be read of it, as (path, reason)."""


@dataclass(frozen=True, slots=True)
class Index:
    folder: Path
    manifest: Manifest
    passages: PassageStore

    @property
    def data(self) -> Path:
        return self.folder / self.manifest.data

    def part(self, name: str) -> dict[str, Any]:
        """The settings of a way to search."""
        if name not in self.manifest.parts:
            held = ", ".join(self.manifest.parts) or "nothing to search with"
            remedy = f"add it with `jade index PATH --out {self.folder} --{name}`, or set retrieval.kind"
            raise IndexUnusable(f"index {self.folder} has no {name} part (it has {held}); {remedy}")
        return self.manifest.parts[name]

    def sources(self) -> Iterator[SourceRecord]:
        """The files it was made from. Read only when an index is brought up to date."""
        with (self.data / SOURCES).open(encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                fields["unreadable"] = [(path, reason) for path, reason in fields["unreadable"]]
                yield SourceRecord(**fields)

    def close(self) -> None:
        self.passages.close()


def open_index(folder: Path, *, verify: bool = False) -> Index:
    """Open an index folder, or say in one line why it cannot be used. `verify` reads and checks every byte."""
    manifest = read_manifest(folder)
    try:
        check_files(folder, manifest, whole=verify)
    except IndexUnusable:
        newer = read_manifest(folder)
        if newer.data == manifest.data:
            raise
        manifest = newer  # an update finished between reading the manifest and looking at its files
        check_files(folder, manifest, whole=verify)
    try:
        passages = PassageStore(folder / manifest.data)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(folder, f"its passages cannot be opened ({error})") from None
    if len(passages) != manifest.counts.get("passages") or not passages.is_whole:
        raise damaged(folder, "its passages are not those it counts")
    return Index(folder, manifest, passages)
