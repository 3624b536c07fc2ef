"""Settings from Python: a file or a config, then what a call names, then dotted names; the later wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from jade.config import Config, change_config
from jade.config import load_config as read_config

Settings: TypeAlias = Mapping[str, Any]
"""Settings by their dotted names: {"budget.rounds": 4}. All of them are in docs/config.md."""


def config_of(
    config: Config | str | Path | None, named: Settings | None = None, settings: Settings | None = None
) -> Config:
    """What is named and None was not given."""
    given = {name: _plain(value) for name, value in (named or {}).items() if value is not None}
    values = {**given, **(settings or {})}
    if isinstance(config, Config):
        return change_config(config, values)
    return read_config(None if config is None else Path(config), values=values)


def load_config(file: str | Path | None = None, settings: Settings | None = None) -> Config:
    """A config from its TOML file, or of the defaults, with some settings changed."""
    return config_of(file, None, settings)


def _plain(value: Any) -> Any:
    """A folder is named by its text."""
    return str(value) if isinstance(value, Path) else value
