"""Make an index folder, or bring it up to date.

Files that have not changed are not read again: their passages are taken over from the index before, and the result
is the same, byte for byte, as an index made from nothing. Until the last step the old index stays as it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from jade.errors import ConfigError, DocumentError, IndexUnusable
from jade.retrieval.bm25 import SETTINGS, write_bm25
from jade.retrieval.encoder import Encoder, EncoderSpec
from jade.retrieval.index import BM25, DENSE, SOURCES, Index, SourceRecord, open_index
from jade.retrieval.manifest import Manifest, describe, read_manifest
from jade.retrieval.publish import publish, writing
from jade.retrieval.store import PassageStore, PassageWriter
from jade.types import Passage

Complaint: TypeAlias = tuple[str, str]
"""What could not be read: (path, reason)."""
ReadFile: TypeAlias = Callable[[str], Iterable[list[Passage] | Complaint]]
"""Given a file's name, the passages of each of its documents, and what could not be read."""


class Progress(Protocol):
    def __call__(self, stage: str, done: int, total: int) -> None: ...


def no_progress(stage: str, done: int, total: int) -> None:
    """For callers that do not watch."""


@dataclass(frozen=True, slots=True)
class DensePlan:
    """A dense part to make: with which encoder, or from which file of vectors."""

    encoder: EncoderSpec
    device: str = "auto"
    vectors: Path | None = None
    imported: bool = False
    """Whether the part is, or was, made from a file of vectors."""

    def part(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {**asdict(self.encoder), "imported": self.imported}


def plan_like(out: Path) -> DensePlan | None:
    """The plan of the dense part that an index folder already has."""
    try:
        part = dict(read_manifest(out).parts.get(DENSE, {}))
    except IndexUnusable:
        return None
    imported = bool(part.pop("imported", False))
    return DensePlan(EncoderSpec(**part), imported=imported) if part else None


@dataclass(frozen=True, slots=True)
class Report:
    """What was done."""

    manifest: Manifest
    num_read: int
    """Files that were read."""
    num_kept: int
    """Files taken over unread."""
    num_removed: int
    """Files that the index before had and this one has not."""
    unreadable: tuple[Complaint, ...]
    seconds: float
    unchanged: bool
    """Whether the index was up to date already and nothing was written."""
    num_other: int = 0
    """Files of kinds that are not documents, or of JADE's own."""

    @property
    def num_bytes(self) -> int:
        return sum(record.num_bytes for record in self.manifest.files.values())


@dataclass(frozen=True, slots=True)
class Gathered:
    """The passages of all files, written down: every file's record, and the old records of those taken over."""

    records: tuple[SourceRecord, ...]
    kept: Mapping[str, SourceRecord]
    num_removed: int = 0
    num_renamed: int = 0

    def counts(self) -> dict[str, int]:
        return {
            "files": len(self.records),
            "documents": sum(record.num_documents for record in self.records),
            "passages": sum(record.num_passages for record in self.records),
            "renamed": self.num_renamed,
        }


def build_index(
    out: Path,
    files: Mapping[str, str],
    read: ReadFile,
    *,
    settings: Mapping[str, Any],
    dense: DensePlan | None = None,
    fresh: bool = False,
    progress: Progress = no_progress,
) -> Report:
    """Index `files`, given as name -> fingerprint. `settings` are those that shape what `read` returns."""
    started = time.perf_counter()
    with writing(out) as folder:
        old = None if fresh else _previous(out, dict(settings))
        try:
            unchanged = old is not None and _is_current(old, files, dense)
            if old is not None and unchanged:
                records = tuple(old.sources())
                gathered, manifest = Gathered(records, {record.name: record for record in records}), old.manifest
            else:
                encoder = _encoder_of(dense)
                gathered = _gather(folder, files, read, old, progress)
                parts = _write_parts(folder, gathered, dense, encoder, old, progress)
                manifest = publish(out, folder, describe(folder, dict(settings), gathered.counts(), parts))
        finally:
            if old is not None:
                old.close()
    return Report(
        manifest,
        num_read=len(gathered.records) - len(gathered.kept),
        num_kept=len(gathered.kept),
        num_removed=gathered.num_removed,
        unreadable=tuple(complaint for record in gathered.records for complaint in record.unreadable),
        seconds=time.perf_counter() - started,
        unchanged=unchanged,
    )


def _previous(out: Path, settings: dict[str, Any]) -> Index | None:
    """The index that is there, if it can be used and was made alike."""
    try:
        old = open_index(out)
    except IndexUnusable:
        return None
    if old.manifest.settings == settings:
        return old
    old.close()
    return None


def _is_current(old: Index, files: Mapping[str, str], dense: DensePlan | None) -> bool:
    parts = {BM25: SETTINGS} | ({DENSE: dense.part()} if dense else {})
    known = {record.name: record.fingerprint for record in old.sources()}
    return old.manifest.parts == parts and known == dict(files) and not (dense and dense.vectors)


def _encoder_of(plan: DensePlan | None) -> Encoder | None:
    """What a dense part is made with, if it is made here. What is missing for one is said before the documents are
    read, which may take hours."""
    if plan is None:
        return None
    if plan.vectors is not None:
        if not plan.vectors.is_file():
            raise ConfigError(f"--faiss {plan.vectors}: no such file")
        return None
    if plan.imported:
        raise ConfigError("the index's vectors came from a file and its documents changed: give --faiss or --no-dense")
    return Encoder(plan.encoder, plan.device)


def _gather(folder: Path, files: Mapping[str, str], read: ReadFile, old: Index | None, progress: Progress) -> Gathered:
    known = {record.name: record for record in old.sources()} if old else {}
    kept = {name: record for name, record in known.items() if files.get(name) == record.fingerprint}
    records = []
    with PassageWriter(folder) as writer:
        for number, (name, fingerprint) in enumerate(files.items(), start=1):
            if old is not None and name in kept:
                records.append(_copy_file(writer, kept[name], old.passages))
            else:
                records.append(_write_file(writer, name, fingerprint, read(name)))
            progress("reading files", number, len(files))
    with (folder / SOURCES).open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records)
    if not len(writer):
        reasons = [f"{path} {reason}" for record in records for path, reason in record.unreadable]
        raise DocumentError(f"nothing to index: {reasons[0] if reasons else 'no documents were found'}")
    return Gathered(tuple(records), kept, len(known.keys() - files.keys()), writer.num_renamed)


def _copy_file(writer: PassageWriter, record: SourceRecord, passages: PassageStore) -> SourceRecord:
    first = len(writer)
    for row in range(record.first, record.first + record.num_passages):
        writer.add(passages.as_read(row))
    return replace(record, first=first)


def _write_file(
    writer: PassageWriter, name: str, fingerprint: str, items: Iterable[list[Passage] | Complaint]
) -> SourceRecord:
    first, num_documents = len(writer), 0
    unreadable: list[Complaint] = []
    for item in items:
        if isinstance(item, tuple):
            unreadable.append((item[0], item[1]))
            continue
        num_documents += 1
        for passage in item:
            writer.add(passage)
    return SourceRecord(name, fingerprint, first, len(writer) - first, num_documents, unreadable)


def _write_parts(
    folder: Path,
    gathered: Gathered,
    dense: DensePlan | None,
    encoder: Encoder | None,
    old: Index | None,
    progress: Progress,
) -> dict[str, Any]:
    """Everything that is searched; returns what the manifest says of it."""
    passages = PassageStore(folder)
    try:
        write_bm25(_counted(passages, "counting words", progress), folder / BM25)
        if dense is None:
            return {BM25: SETTINGS}
        if encoder is not None:
            _write_dense(folder / DENSE, passages, gathered, dense, encoder, old, progress)
        elif dense.vectors is not None:
            from jade.retrieval.dense import import_vectors

            import_vectors(dense.vectors, folder / DENSE, len(passages))
        return {BM25: SETTINGS, DENSE: dense.part()}
    finally:
        passages.close()


def _write_dense(
    folder: Path,
    passages: PassageStore,
    gathered: Gathered,
    plan: DensePlan,
    encoder: Encoder,
    old: Index | None,
    progress: Progress,
) -> None:
    from jade.retrieval.dense import Kept, write_dense

    reusable = old is not None and old.manifest.parts.get(DENSE) == plan.part()
    kept = [
        Kept(record.first, gathered.kept[record.name].first, record.num_passages)
        for record in gathered.records
        if reusable and record.name in gathered.kept and record.num_passages
    ]
    write_dense(
        passages,
        folder,
        encoder,
        older=old.data / DENSE if old is not None and reusable else None,
        kept=kept,
        encoded=lambda done: progress("encoding passages", done, len(passages)),
    )


def _counted(passages: PassageStore, stage: str, progress: Progress) -> Iterator[Passage]:
    for number, passage in enumerate(passages, start=1):
        yield passage
        progress(stage, number, len(passages))
