"""Write docs/config.md and docs/cli.md from the code, so that they cannot disagree with it.

Usage: python scripts/make_docs.py [--check]      (--check writes nothing and fails when a page is out of date)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import typer
from pydantic import BaseModel

from jade.cli.main import app
from jade.config import Config

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Written by scripts/make_docs.py; edit the code, then `make docs`. -->\n"


def config_page() -> str:
    head = (
        f"# Settings\n{NOTE}\nOne TOML file; every field has a default, so an empty file is valid. "
        "On the command line: `--set section.field=value`.\n"
    )
    return head + "".join(_section(Config, ""))


def _section(model: type[BaseModel], path: str) -> Iterator[str]:
    plain, nested = [], []
    for name, field in model.model_fields.items():
        kind = field.annotation
        is_section = isinstance(kind, type) and issubclass(kind, BaseModel)
        (nested if is_section else plain).append((name, field))
    if plain:
        yield f"\n## `{path or 'top'}`\n\n| field | default | meaning |\n|---|---|---|\n"
    for name, field in plain:
        default = field.get_default(call_default_factory=True)
        yield f"| `{name}` | `{_cell(default)}` | {_cell(field.description or '')} |\n"
    for name, field in nested:
        assert isinstance(field.annotation, type)
        yield from _section(field.annotation, f"{path}.{name}" if path else name)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def cli_page() -> str:
    command = typer.main.get_command(app)
    return f"# Commands\n{NOTE}" + "".join(_verb(command, "jade"))


def _verb(command: click.Command, path: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands:
        for name, sub in subcommands.items():
            yield from _verb(sub, f"{path} {name}")
        return
    yield f"\n## `{path}`\n\n{' '.join((command.help or '').split())}\n\n| | default | meaning |\n|---|---|---|\n"
    for parameter in command.params:
        if parameter.name != "help":
            yield _row(parameter)


def _row(parameter: click.Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.opts) if parameter.param_type_name == "option" else ""
    name = names or f"`{(parameter.name or '').upper()}`"
    default = "" if parameter.default is None or parameter.required else f"`{_cell(parameter.default)}`"
    return f"| {name} | {default} | {_cell(getattr(parameter, 'help', '') or '')} |\n"


def main() -> int:
    pages = {DOCS / "config.md": config_page(), DOCS / "cli.md": cli_page()}
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is out of date: run make docs")
        return bool(stale)
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
