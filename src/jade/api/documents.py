"""Documents in, an index folder out: the corpus and the index put together.

What is read is only what changed; what cannot be read is named in the report and stops nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jade.corpus.files import Found
    from jade.retrieval.build import DensePlan, Progress, Report


def index(
    paths: str | Path | Sequence[str | Path],
    out: str | Path = "index",
    *,
    dense: bool | None = None,
    encoder: str = "",
    device: str = "auto",
    faiss: str | Path | None = None,
    words: int = 100,
    overlap: int = 0,
    row_words: int = 400,
    max_megabytes: float = 50.0,
    fresh: bool = False,
) -> Report:
    """Make an index of documents, or bring it up to date: only what changed is read. What `jade index` does, by the
    names of its options. The report says what could not be read."""
    from jade.corpus.cut import Cutting
    from jade.screen.bars import stage_bars
    from jade.screen.terminal import open_screen

    named = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    plan = dense_plan(dense, encoder, device, Path(faiss) if faiss else None, Path(out))
    if plan is not None and plan.imported:
        row_words = sys.maxsize  # vector i is row i, so no row may become two passages
    cutting = Cutting(words, overlap, row_words)
    with stage_bars(open_screen(stderr=True)) as progress:
        return index_documents(
            named, Path(out), cutting=cutting, max_megabytes=max_megabytes, fresh=fresh, progress=progress,
            dense=plan,
        )  # fmt: skip


def index_documents(
    paths: Sequence[Path],
    out: Path,
    *,
    cutting: Any = None,
    max_megabytes: float = 50.0,
    dense: DensePlan | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Read and cut all documents under `paths` into the index folder `out`."""
    from dataclasses import asdict, replace

    from jade.corpus.cut import Cutting
    from jade.corpus.documents import Limits
    from jade.corpus.files import find_files
    from jade.corpus.read import READERS_VERSION, read_passages
    from jade.retrieval.build import build_index, no_progress

    cutting = cutting or Cutting()
    limits = Limits(file_bytes=int(max_megabytes * 1e6), row_bytes=int(max_megabytes * 1e6))
    # An index often lies inside the folder that it is made of; its own files are no documents.
    found = find_files(paths, exclude=out)
    by_name = {file.name: file for file in found.files}
    _refuse_nothing(found, paths)
    report = build_index(
        out,
        {name: file.fingerprint for name, file in by_name.items()},
        lambda name: read_passages(by_name[name].path, name, cutting, limits),
        settings={**asdict(cutting), **asdict(limits), "readers": READERS_VERSION},
        dense=dense,
        fresh=fresh,
        progress=progress or no_progress,
    )
    return replace(report, unreadable=(*found.unreadable, *report.unreadable), num_other=found.num_other)


def shard_documents(paths: Sequence[Path], out: Path, size: int, cutting: Any, max_megabytes: float) -> str:
    """Read and cut all documents under `paths` into shards, everything anew; one line says what came of it."""
    from jade.corpus.documents import Limits
    from jade.corpus.files import find_files
    from jade.corpus.read import read_passages
    from jade.retrieval.shards_build import build_shards

    limits = Limits(file_bytes=int(max_megabytes * 1e6), row_bytes=int(max_megabytes * 1e6))
    found = find_files(paths, exclude=out)
    _refuse_nothing(found, paths)
    unreadable = len(found.unreadable)

    def passages() -> Iterator[Any]:
        nonlocal unreadable
        for file in found.files:
            for item in read_passages(file.path, file.name, cutting, limits):
                if isinstance(item, tuple):
                    unreadable += 1
                else:
                    yield from item

    shards = build_shards(passages(), out, size)
    missed = f"; {unreadable:,} could not be read" if unreadable else ""
    return f"{out} is ready: {shards.passages:,} passages in {len(shards.starts):,} shards{missed}"


def verified(out: Path) -> str:
    """Read every byte of an index, or of all its shards; one line when all is well, IndexUnusable when not."""
    from jade.retrieval.index import open_index
    from jade.retrieval.shards import is_sharded, read_shards

    num_files = num_passages = 0
    for folder in [out / name for name in read_shards(out).names()] if is_sharded(out) else [out]:
        index = open_index(folder, verify=True)
        index.close()
        num_files += len(index.manifest.files)
        num_passages += index.manifest.counts["passages"]
    return f"{out}: all {num_files} files are as written; {num_passages:,} passages"


def _refuse_nothing(found: Found, paths: Sequence[Path]) -> None:
    from jade.errors import DocumentError

    if found.files:
        return
    where = ", ".join(map(str, paths))
    why = f"{found.num_other} files of other kinds" if found.num_other else "no files"
    if found.unreadable:
        why = f"{found.unreadable[0].path} {found.unreadable[0].reason}"
    raise DocumentError(f"nothing to index in {where} ({why}); JADE reads .txt .md .html .pdf .docx .jsonl .jsonl.gz")


def dense_plan(dense: bool | None, encoder: str, device: str, faiss: Path | None, out: Path) -> DensePlan | None:
    """How an index is searched by meaning; None where it is not. Where nothing is said, as the index was."""
    from dataclasses import replace

    from jade.retrieval.build import DensePlan, plan_like
    from jade.retrieval.encoder import DEFAULT_ENCODER, spec_for

    if faiss is not None:
        return DensePlan(spec_for(encoder or DEFAULT_ENCODER), device, vectors=faiss, imported=True)
    if dense or encoder:
        return DensePlan(spec_for(encoder or DEFAULT_ENCODER), device)
    before = plan_like(out) if dense is None else None
    return replace(before, device=device) if before else None
