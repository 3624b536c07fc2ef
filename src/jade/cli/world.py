"""`jade world`: write the built-in world to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[Path, typer.Option(help="The folder to write; a world that is there is replaced.")],
    pages: Annotated[int, typer.Option(help="Pages of the encyclopaedia, 50 to 100000.")] = 300,
    questions: Annotated[int, typer.Option(help="Questions in all; a tenth each for dev and test.")] = 300,
    seed: Annotated[int, typer.Option(help="The same seed gives the same world.")] = 0,
) -> None:
    """Make a fictional country: pages to search and questions with known answers."""
    from jade.api.worlds import world as write
    from jade.corpus.world.questions import MIX

    world = write(out, pages=pages, questions=questions, seed=seed)
    typer.echo(f"{world.country}: {len(world.pages)} pages, {len(world.questions)} questions in {out}")
    for kind in MIX:
        examples = [question.text for question in world.questions if question.metadata["kind"] == kind][:1]
        counts = (
            f"{sum(question.metadata['kind'] == kind for question in asked)} {split}"
            for split, asked in world.splits.items()
        )
        typer.echo("; ".join([f"{kind:>9}: {', '.join(counts)}", *examples]))
