"""`jade warmstart`: supervised examples for every role from gold data, and a policy fitted to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import Overrides, config_from
from jade.cli.train import RESUMED, Minutes, Resume, RunFolder

if TYPE_CHECKING:
    from jade.config import Config


def command(
    config: Annotated[Path, typer.Argument(help="A TOML file with a section `warmstart`; see runs/.")],
    out: RunFolder = None,
    resume: Resume = False,
    minutes: Minutes = None,
    examples_only: Annotated[bool, typer.Option("--examples-only", help="Write the examples and stop there.")] = False,
    settings: Overrides = None,
) -> None:
    """Teach every role from gold data before it learns by itself."""
    from rich.console import Console

    from jade.api.training import folder_for, warm_start
    from jade.screen.terminal import saying_what_is_kept, tell

    say = partial(tell, Console(stderr=True))
    chosen, folder = config_from(config, settings), out or folder_for(config)
    with saying_what_is_kept(folder, RESUMED):
        if examples_only:
            say(f"examples are in {write_examples(chosen, folder, say, resume)}")
            return
        model = warm_start(chosen, folder, resume=resume, minutes=minutes)
    if model is not None:
        say(f"the warm-started policy is in {model}: set backbone.{model.name} to it")


def write_examples(config: Config, folder: Path, say: Callable[[str], None], resume: bool) -> Path:
    from jade.learn.open import say_if_new
    from jade.learn.warmstart.run import make_examples

    if resume:
        say_if_new(folder, say)
    return make_examples(config, folder, say, resume=resume)
