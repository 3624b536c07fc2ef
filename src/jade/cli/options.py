"""Options that several verbs share, and the config they make together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from jade.config import Config

ConfigFile: TypeAlias = Annotated[Path | None, typer.Option("--config", help="A TOML file; see docs/config.md.")]
Overrides: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, e.g. --set budget.rounds=4. May be given again.")
]
Index: TypeAlias = Annotated[str | None, typer.Option("--index", help="An index folder or a retrieval server's URL.")]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A shipped name, a Hugging Face folder or name, or a server's URL (URL#NAME: one of its models).",
    ),
]
Effort: TypeAlias = Annotated[
    str | None, typer.Option("--effort", help="What to spend: low, medium, high, or a number from 0 to 1.")
]


def config_from(
    path: Path | None,
    overrides: list[str] | None,
    *,
    index: str | None = None,
    model: str | None = None,
    effort: str | None = None,
) -> Config:
    """The config file, then the named options, then --set: the later wins."""
    from jade.config import load_config  # building the schema takes longer than `jade --help` should

    named = {"retrieval.index": index, "backbone.model": model, "reward.effort": effort}
    given = {name: value for name, value in named.items() if value is not None}
    return load_config(path, overrides or (), values=given)


def team_from(
    path: Path | None,
    overrides: list[str] | None,
    *,
    index: str | None = None,
    model: str | None = None,
    effort: str | None = None,
    may_be_asked: bool = False,
) -> Config:
    """The config of a verb that answers: its effort is a place on the dial that the team was trained with. Questions
    may come with an effort of their own, or all have the verb's."""
    from jade.backbone.trained import as_trained

    config = config_from(path, overrides, index=index, model=model, effort=effort)
    return as_trained(config, may_be_asked=may_be_asked)
