"""Which runs a report is about: each by itself, or several under one name, which are pooled as seeds of one arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jade.errors import ConfigError
from jade.evaluate.store import differences

FREE = ("seed", "weights", "backbone", "roles", "prompts")
"""Settings in which the runs of an arm may differ: another seed trains other weights."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs of the same thing; without a name a run stands for itself."""

    name: str
    runs: tuple[Path, ...]


def read_arms(given: Sequence[str]) -> list[Arm]:
    """`NAME=FOLDER` or `FOLDER`, in the order in which each name comes first."""
    runs: dict[tuple[str, str], list[Path]] = {}
    for text in given:
        name, folder = _split(text)
        found = runs.setdefault((name, "" if name else folder), [])
        if Path(folder) in found or (not name and found):
            raise ConfigError(f"{text} is given twice: name every run once")
        found.append(Path(folder))
    return [Arm(name, tuple(folders)) for (name, _), folders in runs.items()]


def _split(text: str) -> tuple[str, str]:
    name, separator, folder = text.partition("=")
    if not separator or Path(text).is_dir():
        return "", text
    if not name.strip() or not folder:
        raise ConfigError(f"{text!r} is not of the form NAME=FOLDER")
    return name.strip(), folder


def check_alike(arm: Arm, runs: Mapping[Path, Mapping[str, Any]]) -> None:
    """Raise ConfigError when what is to be pooled was not measured in the same way."""
    first, *others = arm.runs
    wanted = _compared(runs[first])
    for run in others:
        difference = next(differences(wanted, _compared(runs[run])), None)
        if difference:
            raise ConfigError(f"{run} cannot be pooled with {first} as {arm.name!r}: it has another {difference}")


def _compared(run: Mapping[str, Any]) -> dict[str, Any]:
    """What must agree; of a retrieval server that there was one: its address says nothing about its corpus."""
    settings = {name: value for name, value in run["settings"].items() if name not in FREE}
    return settings | {"index": "a server" if "://" in settings["index"] else settings["index"]}
