"""TOML in: a file, then dotted overrides, checked once; every complaint is one line that names the setting."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from jade.config.schema import Config
from jade.errors import ConfigError


def load_config(
    path: Path | None = None, overrides: Sequence[str] = (), *, values: Mapping[str, Any] | None = None
) -> Config:
    """Read a TOML file, put in values by their dotted names, apply `section.field=value` overrides, check everything
    once: the later wins."""
    data = _read(path) if path else {}
    for name, value in (values or {}).items():
        _place(data, name, value, repr(name))
    for override in overrides:
        _apply(data, override)
    return _checked(data, path, [*(values or {}), *(override.partition("=")[0].strip() for override in overrides)])


def change_config(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with other values, by their dotted names; what was never set stays unset."""
    data = config.model_dump(exclude_unset=True)
    for name, value in values.items():
        _place(data, name, value, repr(name))
    return _checked(data, None)


def _checked(data: dict[str, Any], path: Path | None, elsewhere: Sequence[str] = ()) -> Config:
    """`elsewhere` names what was set after the file was read."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("; ".join(_complaints(error, path, elsewhere))) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, brackets without end
        raise ConfigError(f"config {path} is not TOML: {error}") from None


def _apply(data: dict[str, Any], override: str) -> None:
    name, separator, text = override.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"override {override!r} is not of the form section.field=value")
    value = _value(text.strip(), _wants_text(name.strip().split(".")))
    _place(data, name.strip(), value, f"override {override!r}")


def _place(data: dict[str, Any], name: str, value: Any, said: str) -> None:
    """Set what has a dotted name; `said` is how its user called it."""
    *sections, field = name.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{said}: {section} is not a section")
    data[field] = value


def _value(text: str, as_text: bool) -> Any:
    """TOML if it is TOML (numbers, booleans, lists, quoted strings), otherwise the text itself.

    Where a text or a path is wanted, only a quoted string is TOML: a folder may be named 2024 or true.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
    return text if as_text and not isinstance(value, str) else value


def _wants_text(names: Sequence[str]) -> bool:
    """Whether the setting of this name is a text or a path; one that does not exist is complained of later."""
    kind = _kind(names)
    # A list of texts, or a table of them, is still written as TOML.
    return bool({str, Path} & {kind, *get_args(kind)}) and get_origin(kind) not in (tuple, dict)


def _kind(names: Sequence[str]) -> Any:
    """What the setting or the section of this name holds; None where there is none."""
    kind: Any = Config
    for name in names:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and name in kind.model_fields:
            kind = kind.model_fields[name].annotation
        else:
            return None
    return kind


def _complaints(error: ValidationError, path: Path | None, elsewhere: Sequence[str]) -> Iterator[str]:
    for problem in error.errors():
        field = ".".join(str(part) for part in problem["loc"])
        where = f"{path}: " if path and not any(_one_holds_the_other(field, name) for name in elsewhere) else ""
        given = "" if problem["type"] in ("missing", "extra_forbidden") else f" (given: {problem['input']!r})"
        message = _unknown(field) if problem["type"] == "extra_forbidden" else problem["msg"]
        if problem["type"] == "tuple_type":
            message = f"it takes a list: [{json.dumps(problem['input'], default=str, ensure_ascii=False)}]"
        yield f"{where}{field}: {message}{given}"


def _one_holds_the_other(field: str, name: str) -> bool:
    """Whether two dotted names are one setting, or one of them is a part of the other."""
    return f"{field}.".startswith(f"{name}.") or f"{name}.".startswith(f"{field}.")


def _unknown(field: str) -> str:
    """That there is no such setting, and the one of its section that was probably meant."""
    *sections, name = field.split(".")
    section = _kind(sections)
    known = list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
    meant = get_close_matches(name, known, n=1)
    return "no such setting" + (f" (did you mean {'.'.join([*sections, *meant])}?)" if meant else "")
