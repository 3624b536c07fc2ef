"""`jade doctor`: what can be done here, and what is missing for the rest."""

from __future__ import annotations

import typer

from jade.cli.options import ConfigFile, Index, Model, Overrides, config_from

MARKS = {"works": "[green]✓[/]", "missing": "[dim]–[/]", "broken": "[red]✗[/]"}


def command(
    model: Model = None,
    index: Index = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Say what works on this machine and how to get what does not. A model or an index that is named is tried."""
    import asyncio

    from rich.table import Table

    from jade.screen.doctor import examine
    from jade.screen.terminal import foreign, open_screen

    chosen = config_from(config, settings, index=index, model=model)
    findings = asyncio.run(examine(chosen, model=model is not None, index=bool(chosen.retrieval.index)))
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        table.add_row(MARKS[finding.state], foreign(finding.name), foreign(finding.what))
    open_screen().print(table)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)
