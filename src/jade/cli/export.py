"""`jade export`: a run's weights as a plain Hugging Face folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Precision(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def command(
    run: Annotated[Path, typer.Argument(help="The folder of a training run or a warm start.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    merge: Annotated[bool, typer.Option("--merge", help="Merge an adapter into the model it was trained on.")] = False,
    dtype: Annotated[Precision, typer.Option(help="bfloat16 halves the size.")] = Precision.FLOAT32,
    checkpoint: Annotated[str, typer.Option(help="best, newest, or an iteration's number.")] = "best",
) -> None:
    """Write the trained policy so that transformers, peft and vLLM load it."""
    from jade.config import TeamConfig, load_config
    from jade.learn.export import export_run

    typer.echo(str(export_run(run, out, merge=merge, dtype=dtype.value, checkpoint=checkpoint)))
    team = load_config(run / "config.toml").team
    apart = [f"team.{name}" for name, value in team if value != getattr(TeamConfig(), name)]
    if apart:
        typer.echo(f"its team was set otherwise in training; give the same {', '.join(apart)} with it", err=True)
