"""`jade index`: documents in, an index folder out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from jade.retrieval.build import Report

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
    max_megabytes: Annotated[
        float, typer.Option(help="Larger files are passed over; JSONL is read up to a larger line.")
    ] = 50.0,
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
    from jade.api.documents import index, shard_documents, verified
    from jade.corpus.cut import Cutting
    from jade.errors import ConfigError
    from jade.screen.terminal import foreign, open_screen

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
    report = index(
        paths, out, dense=dense, encoder=encoder, device=device, faiss=faiss, words=words, overlap=overlap,
        row_words=row_words, max_megabytes=max_megabytes, fresh=fresh,
    )  # fmt: skip
    for line in _lines(report, out, None if list_all else MOST_LISTED):
        console.print(foreign(line), soft_wrap=True)


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
