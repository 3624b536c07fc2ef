"""TOML out: text that loads to the same config."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jade.config.schema import Config


def dump_config(config: Config) -> str:
    """The config as TOML that loads to the same config."""
    return "\n".join(_toml_lines(config.model_dump(mode="json", exclude_none=True), ())) + "\n"


def _toml_lines(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    if path and plain:
        yield f"\n[{'.'.join(map(_toml_key, path))}]"
    for key, value in plain.items():
        yield f"{_toml_key(key)} = {_toml_value(value)}"
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _toml_lines(value, (*path, key))


def _toml_key(key: str) -> str:
    """Bare where TOML allows it; the code of a role from outside need not be ASCII."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    # A text of TOML is one of JSON, but for the delete character, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
