"""`jade warmstart`: supervised examples for every role from gold data, and a policy fitted to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jade.cli.options import Overrides, config_from
from jade.cli.train import RESUMED, Minutes, Resume, RunFolder, folder_for


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

    from jade.cli.screen import saying_what_is_kept
    from jade.learn.monitor.show import watch
    from jade.learn.open import say_if_new
    from jade.learn.warmstart.run import make_examples, run_warmstart

    console = Console(stderr=True)
    chosen, folder = config_from(config, settings), out or folder_for(config)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if resume:
        say_if_new(folder, say)
    if examples_only:
        with saying_what_is_kept(folder, RESUMED):
            say(f"examples are in {make_examples(chosen, folder, say, resume=resume)}")
        return
    with saying_what_is_kept(folder, RESUMED), watch(console) as spectator:
        model = run_warmstart(chosen, folder, spectator, say, resume=resume, minutes=minutes)
    if model is not None:
        say(f"the warm-started policy is in {model}: set backbone.{model.name} to it")
