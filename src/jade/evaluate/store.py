"""The folder of an evaluation run: what was asked for in `run.json`, and a folder of files for every cell.

    RUN/run.json                         settings, the whole config, versions
    RUN/<benchmark>/<method>[@variant]/  records.jsonl, traces.jsonl, timings.jsonl, asked.json

asked.json says how many questions there are to be. The three other files of a cell grow line by line in the order of
the questions. After a kill they are cut back to the questions that all three have, so that a resumed run ends with the
same records, byte for byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from jade.engine.record import dump_trace
from jade.errors import ConfigError, TraceUnreadable
from jade.evaluate.record import Record, dump_record, is_of, parse_record, read_line
from jade.types import Question, Trace

RUN_FILE = "run.json"
RUN_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One benchmark under one method and one wording of the prompts (0: the shipped one)."""

    benchmark: str
    method: str
    variant: int = 0

    @property
    def column(self) -> str:
        return f"{self.method}@{self.variant}" if self.variant else self.method

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.column}"


@dataclass(frozen=True, slots=True)
class Timing:
    """When a question was worked, in seconds since its session began."""

    id: str
    session: int
    began: float
    ended: float
    seconds: float


_TIMING = TypeAdapter(Timing)


class CellFiles:
    """The files of one cell."""

    def __init__(self, run: Path, cell: Cell) -> None:
        self.folder = run / cell.benchmark / cell.column
        self.records = self.folder / "records.jsonl"
        self.traces = self.folder / "traces.jsonl"
        self.timings = self.folder / "timings.jsonl"
        self._asked = self.folder / "asked.json"

    def resume(self, questions: Sequence[Question]) -> list[Record]:
        """Cut what a kill left half-written; the records of the questions that are done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ends = {path: list(_line_ends(path)) for path in (self.traces, self.timings, self.records)}
        num_done = min(map(len, ends.values()))
        if gone := [path for path in ends if ends[self.records] and not path.is_file()]:
            # No kill does that: the record comes last. To cut back to a file that is not there would be to begin anew.
            asked = f"all {len(ends[self.records])} questions of {self.records} would be asked again"
            raise ConfigError(f"{gone[0]} is gone, and {asked}: put it back, or choose another --out")
        records = list(islice(read_records(self.records), num_done)) if num_done else []
        self._check(records, questions)  # before anything is changed: a run that is refused stays as it was
        for path, places in ends.items():
            if path.is_file():
                os.truncate(path, places[num_done - 1] if num_done else 0)
        _write_whole(self._asked, {"questions": len(questions)})
        return records

    def append(self, trace: Trace, timing: Timing, record: Record) -> None:
        """Add one question. The record comes last: a question counts as done when it stands there."""
        # Unbuffered and one after the other: a kill leaves the first files longer, never the last.
        _append(self.traces, dump_trace(trace))
        _append(self.timings, json.dumps({name: getattr(timing, name) for name in Timing.__slots__}))
        _append(self.records, dump_record(record))

    def num_asked(self) -> int | None:
        """How many records a finished cell has; None where the run did not say."""
        try:
            return int(json.loads(self._asked.read_text(encoding="utf-8"))["questions"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def num_sessions(self) -> int:
        return max((timing.session for timing in read_timings(self.timings)), default=-1) + 1

    def _check(self, records: Sequence[Record], questions: Sequence[Question]) -> None:
        if len(records) > len(questions):
            raise ConfigError(f"{self.records} has {len(records)} records, this call {len(questions)} questions")
        for number, (record, question) in enumerate(zip(records, questions, strict=False), start=1):
            if not is_of(record, question):
                complaint = f"is about {record.id!r}, but question {number} is now {question.id!r}"
                raise ConfigError(f"{self.records}:{number} {complaint}: the data has changed, choose another --out")


def open_run(folder: Path, settings: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Start a run in a folder, or make sure that going on with the one there means the same settings.

    `about` is what else is worth knowing (the whole config, versions); it is written once and never compared.
    """
    path = folder / RUN_FILE
    wanted = json.loads(json.dumps(settings))
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(path, {"schema": RUN_SCHEMA, "settings": wanted, **about})
        return
    difference = next(differences(read_run(folder)["settings"], wanted), None)
    if difference:
        raise ConfigError(f"{folder} was run with another {difference}: choose another --out, or the same settings")


def read_run(folder: Path) -> dict[str, Any]:
    """What a run was asked for."""
    path = folder / RUN_FILE
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["schema"] > RUN_SCHEMA:
            raise TraceUnreadable(f"{path} is of schema {run['schema']}: this version reads up to {RUN_SCHEMA}")
        return dict(run)
    except FileNotFoundError:
        raise TraceUnreadable(f"{folder} is not the folder of a run: it has no {RUN_FILE}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceUnreadable(f"{path} cannot be read: {error}") from None


def find_cells(folder: Path) -> list[Cell]:
    """The cells that a run has written, by name."""
    return [_cell(path.parent) for path in sorted(folder.glob("*/*/records.jsonl"))]


def read_records(path: Path) -> Iterator[Record]:
    """The records of a cell; a last line that was cut off in writing is passed over."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith("\n"):
                yield parse_record(line, f"{path}:{number}")


def read_timings(path: Path) -> Iterator[Timing]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith("\n"):
                yield read_line(_TIMING, line, f"{path}:{number}: not a timing")


def differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """What differs between two settings, each as `backbone.model ('a', now 'b')`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    elif old != new:
        yield f"{name} ({old!r}, now {new!r})"


def _cell(folder: Path) -> Cell:
    method, _, variant = folder.name.partition("@")
    return Cell(folder.parent.name, method, int(variant) if variant.isdigit() else 0)


def _line_ends(path: Path) -> Iterator[int]:
    """The places just after each line break."""
    if not path.is_file():
        return
    place = 0
    with path.open("rb") as file:
        for line in file:
            place += len(line)
            if line.endswith(b"\n"):
                yield place


def _append(path: Path, line: str) -> None:
    with path.open("ab") as file:  # buffered: what writes at once may write less than it was given, and say nothing
        file.write(f"{line}\n".encode())


def _write_whole(path: Path, data: Mapping[str, Any]) -> None:
    """All or nothing, also for whoever is killed here."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)
