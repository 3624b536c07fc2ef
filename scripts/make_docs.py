"""Write docs/config.md and docs/cli.md from the code, so that they cannot disagree with it.

Usage: python scripts/make_docs.py [--check]      (--check writes nothing and fails when a page is out of date)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from jade.cli import main as cli
from jade.config import Config

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Written by scripts/make_docs.py; edit the code, then `make docs`. -->\n"
NAMES: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path"}


def config_page() -> str:
    head = (
        f"# Settings\n{NOTE}\nOne TOML file; every field has a default, so an empty file is valid. "
        "On the command line: `--set section.field=value`, where the value is TOML, or plain text where text is wanted "
        "(`--set 'team.workflows=[\"R,AG\"]'`). Paths that are not absolute start where the command is run, "
        "not where the file lies.\n"
    )
    return head + "".join(_section(Config, ""))


def _section(model: type[BaseModel], path: str) -> Iterator[str]:
    nested = {name: field.annotation for name, field in model.model_fields.items() if _is_section(field.annotation)}
    plain = {name: field for name, field in model.model_fields.items() if name not in nested}
    if plain:
        heading = f"`[{path}]`" if path else "Top level"
        yield f"\n## {heading}\n\n| field | value | default | meaning |\n|---|---|---|---|\n"
    for name, field in plain.items():
        default = _toml(field.get_default(call_default_factory=True))
        yield f"| `{name}` | {_cell(_kind(field.annotation))} | {default} | {_cell(field.description or '')} |\n"
    for name, section in nested.items():
        assert isinstance(section, type)
        yield from _section(section, f"{path}.{name}" if path else name)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _kind(kind: Any) -> str:
    """What may be written there, in words."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part not in (NoneType, Ellipsis)]
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        return f"list of {NAMES[parts[0]]}"
    if origin is dict:
        return _for_each_code(parts[1])
    return NAMES[parts[0] if parts else kind]


def _for_each_code(kind: Any) -> str:
    if _is_section(kind):
        return "a table for each code, like `[backbone]`"
    # Pydantic takes a field's own bounds off its type, but not those of what a table holds.
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    example = {int: "{ P = 1 }", float: "{ P = 1.0 }"}[plain]
    return f"{NAMES[plain]} for each code, like `{example}`"


def _toml(value: Any) -> str:
    if value is None or value == {}:
        return ""
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{_cell(json.dumps(plain, ensure_ascii=False))}`"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def cli_page() -> str:
    command = typer.main.get_command(cli.app)
    status = (cli.__doc__ or "").partition("Exit status:")[2]
    return f"# Commands\n{NOTE}\nExit status: {' '.join(status.split())}\n" + "".join(_verb(command, "jade"))


def _verb(command: Any, path: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands:
        for name, sub in subcommands.items():
            yield from _verb(sub, f"{path} {name}")
        return
    yield f"\n## `{path}`\n\n{' '.join((command.help or '').split())}\n\n| | default | meaning |\n|---|---|---|\n"
    for parameter in command.params:
        if parameter.name != "help":
            yield _row(parameter)


def _row(parameter: Any) -> str:
    spellings = (*parameter.opts, *parameter.secondary_opts)
    names = ", ".join(f"`{name}`" for name in spellings) if parameter.param_type_name == "option" else ""
    name = names or f"`{(parameter.name or '').upper()}`"
    return f"| {name} | {_default(parameter)} | {_cell(getattr(parameter, 'help', '') or '')} |\n"


def _default(parameter: Any) -> str:
    """Blank where nothing is the default, and for a switch that is off."""
    if parameter.required:
        return "(needed)"
    if isinstance(parameter.default, bool):
        return f"`{parameter.opts[0]}`" if parameter.default else ""
    return f"`{_cell(parameter.default)}`" if parameter.default not in (None, "") else ""


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
