"""`jade index`: documents in, an index folder out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from jade.corpus.files import Found
    from jade.retrieval.build import DensePlan, Progress, Report

MOST_LISTED = 30
"""Unreadable files named on the screen; `--list-all` names every one."""


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files or folders: .txt .md .html .pdf .docx .jsonl .jsonl.gz. The index holds these and no others: "
            "name all of them each time.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The index folder to make or bring up to date.")] = Path("index"),
    words: Annotated[int, typer.Option(help="Words in a passage, about.")] = 100,
    overlap: Annotated[int, typer.Option(help="Words that a passage repeats of the one before.")] = 0,
    row_words: Annotated[int, typer.Option(help="JSONL rows up to this many words stay whole.")] = 400,
    max_megabytes: Annotated[float, typer.Option(help="Larger files are passed over (JSONL: larger lines).")] = 50.0,
    dense: Annotated[
        bool | None, typer.Option("--dense/--no-dense", help="Also search by meaning. Not given: as the index was.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder of --dense: minilm, a folder or a Hugging Face name.")] = "",
    device: Annotated[str, typer.Option(help="Where the encoder runs: cpu, cuda or auto.")] = "auto",
    faiss: Annotated[
        Path | None, typer.Option(help="Vectors made elsewhere (a faiss file) for the rows of one JSONL corpus.")
    ] = None,
    shard_size: Annotated[
        int, typer.Option(min=0, help="Passages in a shard, for a corpus of millions (words only). 0: one piece.")
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Read everything again, whether it changed or not.")] = False,
    list_all: Annotated[bool, typer.Option("--list-all", help="Name every file that could not be read.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of the index instead.")] = False,
) -> None:
    """Index your documents. Run it again after changes: only what changed is read."""
    from jade.cli.screen import foreign, open_screen
    from jade.corpus.cut import Cutting
    from jade.errors import ConfigError

    console = open_screen(stderr=True)
    if verify:
        console.print(foreign(verified(out)), soft_wrap=True)
        return
    if not paths:
        raise ConfigError("nothing to index: name a file or a folder, e.g. `jade index docs --out index`")
    if shard_size:
        if dense or encoder or faiss is not None:
            raise ConfigError(
                "--shard-size: shards are searched by words only; leave out --dense, --encoder and --faiss"
            )
        line = shard_documents(paths, out, shard_size, Cutting(words, overlap, row_words), max_megabytes)
        console.print(foreign(line), soft_wrap=True)
        return
    plan = _dense_plan(dense, encoder, device, faiss, out)
    if plan is not None and plan.imported:
        row_words = sys.maxsize  # vector i is row i, so no row may become two passages
    cutting = Cutting(words, overlap, row_words)
    with progress_bar(console) as progress:
        report = index_documents(
            paths, out, cutting=cutting, max_megabytes=max_megabytes, fresh=fresh, progress=progress,
            dense=plan,
        )  # fmt: skip
    for line in _lines(report, out, None if list_all else MOST_LISTED):
        console.print(foreign(line), soft_wrap=True)


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


def _dense_plan(dense: bool | None, encoder: str, device: str, faiss: Path | None, out: Path) -> DensePlan | None:
    from dataclasses import replace

    from jade.retrieval.build import DensePlan, plan_like
    from jade.retrieval.encoder import DEFAULT_ENCODER, spec_for

    if faiss is not None:
        return DensePlan(spec_for(encoder or DEFAULT_ENCODER), device, vectors=faiss, imported=True)
    if dense or encoder:
        return DensePlan(spec_for(encoder or DEFAULT_ENCODER), device)
    before = plan_like(out) if dense is None else None
    return replace(before, device=device) if before else None


def _lines(report: Report, out: Path, most: int | None) -> Iterator[str]:
    """The summary, then what could not be read."""
    counts = report.manifest.counts
    done = "was up to date" if report.unchanged else "is ready"
    yield (
        f"{out} {done}: {counts['documents']:,} documents, {counts['passages']:,} passages, "
        f"{report.num_bytes / 1e6:.1f} MB, {report.seconds:.1f} s"
    )
    yield f"{report.num_read:,} files read, {report.num_kept:,} unchanged, {report.num_removed:,} removed"
    if report.num_other:
        yield f"{report.num_other:,} files of other kinds were passed over"
    if counts["renamed"]:
        yield f"{counts['renamed']:,} passages had an id that another already had; they got a number behind it"
    if report.unreadable:
        yield f"{len(report.unreadable):,} could not be read:"
    for path, reason in report.unreadable[:most]:
        yield f"  {path} {reason}"
    if most is not None and len(report.unreadable) > most:
        yield f"  and {len(report.unreadable) - most:,} more (--list-all)"


@contextmanager
def progress_bar(console: Any) -> Iterator[Progress]:
    """A bar for every stage, on a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            if done == total or done % 64 == 0:
                bars.update(tasks[stage], completed=done)

        yield show
