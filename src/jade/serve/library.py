"""What there is to look at: run folders, trace files and what this server has answered, each under a short name.

A folder is read for what it holds: `metrics.jsonl` makes it a training run (with the traces sampled along the way),
`run.json` an evaluation (one entry for each method, over all its benchmarks); anything else is searched for such
folders and for trace files. It is read again with every look, so a run that has just begun appears by itself.
Nothing in a run folder is ever executed, and no path comes from a request.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from jade.config import RewardConfig
from jade.engine.record import LINE_START
from jade.errors import TraceUnreadable
from jade.reward.outcome import ramped
from jade.serve.shelf import Files, Recent, Shelf, TraceFile

METRICS = "metrics.jsonl"
RUN_FILE = "run.json"
LOOK_AGAIN_SECONDS = 2.0
MAX_DEPTH = 3
"""Folders below the given one that are searched for runs."""
Kind = Literal["traces", "evaluation", "training", "live"]


@dataclass(frozen=True)
class Run:
    """An entry of the library."""

    name: str
    title: str
    group: str
    kind: Kind
    shelf: Shelf
    folder: Path | None = None
    reward: RewardConfig = field(default_factory=RewardConfig)

    @property
    def metrics(self) -> Path | None:
        return self.folder / METRICS if self.folder and self.kind == "training" else None

    def reward_of(self, key: str) -> RewardConfig:
        """What a trace was paid by: in training, prices may rise from one iteration to the next."""
        part = self.shelf.rows[self.shelf.place(key)].part
        return ramped(self.reward, int(part) - 1) if self.kind == "training" and part.isdigit() else self.reward


@dataclass(frozen=True, slots=True)
class Found:
    """Something to show, before it has a name."""

    title: str
    group: str
    kind: Kind
    folder: Path
    pattern: str
    """Which files under the folder hold its traces."""


class Library:
    """All that is shown. Shelves stay open from one look to the next."""

    def __init__(self, paths: Sequence[Path] = (), recent: Recent | None = None) -> None:
        self._paths = [path.resolve() for path in paths]
        self._runs: dict[Found, Run] = {}
        self._looked = -LOOK_AGAIN_SECONDS
        self._live = Run("live", "Answered here", "this server", "live", Shelf(recent)) if recent else None
        # What appears later may be empty or anything else; what was named must be something to look at.
        for path in self._paths:
            if not any(_search(path)) or (path.is_file() and not _may_hold_traces(path)):
                raise TraceUnreadable(f"{path}: no traces and no training run there; give a run folder or a trace file")

    def runs(self, *, at_once: bool = False) -> list[Run]:
        """All entries; folders are searched again at most once in a while, unless `at_once` is asked for."""
        if at_once or time.monotonic() - self._looked >= LOOK_AGAIN_SECONDS:
            self._looked = time.monotonic()
            for found in (found for path in self._paths for found in _search(path)):
                if found not in self._runs:
                    self._runs[found] = self._open(found)
        return [*([self._live] if self._live else []), *self._runs.values()]

    def run(self, name: str) -> Run | None:
        """The entry of that name; for one that is not known the folders are searched again."""
        known = {run.name: run for run in self.runs()}
        return known.get(name) or {run.name: run for run in self.runs(at_once=True)}.get(name)

    def _open(self, found: Found) -> Run:
        taken = {run.name for run in self._runs.values()} | {"live"}
        shelf = Shelf(Files(lambda: list_files(found)))
        name = _free_name(found, taken)
        return Run(name, found.title, found.group, found.kind, shelf, found.folder, read_reward_config(found.folder))


def list_files(found: Found) -> list[TraceFile]:
    """The trace files of an entry, as they are now."""
    return [_trace_file(found, path) for path in sorted(found.folder.glob(found.pattern))]


def _trace_file(found: Found, path: Path) -> TraceFile:
    if found.kind == "training":
        number = re.fullmatch(r"iteration-0*(\d+)", path.stem)
        return TraceFile(path, part=number[1] if number else path.stem)
    if found.kind == "evaluation":
        return TraceFile(path, dataset=path.parent.parent.name)
    return TraceFile(path)


def _search(path: Path, depth: int = 0) -> Iterator[Found]:
    """What there is under a path, as far as it may be read: others' closed folders may lie between one's own."""
    try:
        yield from _look_into(path, depth)
    except OSError:
        return


def _look_into(path: Path, depth: int) -> Iterator[Found]:
    if path.is_file():
        yield Found(path.stem, path.parent.name, "traces", path.parent, _literal(path.name))
    elif (path / METRICS).is_file():
        yield Found(path.name, path.parent.name, "training", path, "traces/*.jsonl")
    elif (path / RUN_FILE).is_file():
        yield from _evaluation(path)
    elif path.is_dir() and depth < MAX_DEPTH:
        for inner in sorted(path.iterdir()):
            if inner.name.startswith("."):
                continue
            if inner.is_dir() or (inner.suffix == ".jsonl" and _looks_like_traces(inner)):
                yield from _search(inner, depth + 1)


def _evaluation(folder: Path) -> Iterator[Found]:
    columns = sorted({path.parent.name for path in folder.glob("*/*/traces.jsonl")})
    for column in columns:
        yield Found(column, folder.name, "evaluation", folder, f"*/{_literal(column)}/traces.jsonl")


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _looks_like_traces(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.readline(64).startswith(b'{"schema":')
    except OSError:
        return False


def _may_hold_traces(path: Path) -> bool:
    """Whether a file that was named begins as traces do; one that is still empty may yet."""
    try:
        with path.open("rb") as file:
            return LINE_START.startswith(file.read(len(LINE_START)))
    except OSError as error:
        raise TraceUnreadable(f"{path}: {error.strerror or error}") from None


def _free_name(found: Found, taken: set[str]) -> str:
    """Short and fit for a link; told apart by the folder's name, then by a number."""
    slugs = [re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-") for text in (found.title, found.group)]
    candidates = [slugs[0], "-".join(reversed(slugs)), *(f"{slugs[0]}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in candidates if name and name not in taken)


def read_reward_config(folder: Path) -> RewardConfig:
    """The prices and penalties that a run was made with, where its folder says so; the usual ones otherwise."""
    for data in (_toml(folder / "config.toml"), _json(folder / RUN_FILE).get("config", {})):
        try:
            return RewardConfig.model_validate(data["reward"])
        except (KeyError, TypeError, ValidationError):
            continue
    return RewardConfig()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
