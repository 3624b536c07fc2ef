"""A trace as one line of JSON, and back. A passage that several steps saw is written once.

The form is versioned. Within a version fields may be added: one that an older file lacks has its default, and one that
a newer file has and we do not know is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar, get_args

from jade.errors import TraceUnreadable
from jade.types import (
    TRACE_SCHEMA,
    Action,
    Citation,
    Effort,
    Generation,
    Known,
    Malformed,
    Node,
    Observation,
    Passage,
    Question,
    Step,
    Trace,
    Usage,
)

Json = dict[str, Any]
LINE_START = b'{"schema"'
"""How every trace begins on disk."""
BLOCK_BYTES = 1 << 16
_LEAVES = (str, int, float, bool, type(None))
_Noun = TypeVar("_Noun")
_ACTIONS: dict[str, type] = {kind.__name__: kind for kind in (*get_args(Action), Malformed)}


def trace_to_json(trace: Trace) -> Json:
    """A plain object; `passages` is the table that observations, results and citations point into."""
    table: dict[Passage, int] = {}
    body: Json = _encode(trace, table)
    return {"schema": trace.schema, **body, "passages": [_plain(passage) for passage in table]}


def trace_from_json(data: Mapping[str, Any]) -> Trace:
    """The trace again, equal to the one written. Raises TraceUnreadable on anything else."""
    schema = data.get("schema")
    if not isinstance(schema, int) or schema > TRACE_SCHEMA:
        remedy = "update jade" if isinstance(schema, int) else "is this a file of traces?"
        raise TraceUnreadable(f"trace of schema {schema!r}: this version reads up to {TRACE_SCHEMA}; {remedy}")
    try:
        table = [_build(Passage, passage) for passage in data["passages"]]
        return _Reader(table).trace(data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise TraceUnreadable(f"not a trace: {type(error).__name__}: {error}") from None


def dump_trace(trace: Trace) -> str:
    return json.dumps(trace_to_json(trace), separators=(",", ":"))


def append_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Add lines at the end of a file, each written whole, whoever else adds to it. A line that was cut off there before
    is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        check_holds_traces(path)
    with path.open("a", encoding="utf-8") as file:
        with _alone(file):  # what another is about to write would look cut off
            if path.is_file():
                _drop_cut_line(path)
        for trace in traces:
            line = dump_trace(trace) + "\n"
            with _alone(file):
                file.write(line)
                file.flush()


@contextmanager
def _alone(file: IO[str]) -> Iterator[None]:
    """While nobody else adds to the file; where its system or its disk has no locks, that is the user's to see to."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def check_holds_traces(path: Path) -> None:
    """Refuse a file of something else: its last line would be taken for a trace that was cut off, and be dropped."""
    with path.open("rb") as file:
        start = file.read(len(LINE_START))
    if not LINE_START.startswith(start):
        raise TraceUnreadable(f"{path} holds something else than traces; nothing is added to it: name another file")


def read_traces(path: Path) -> Iterator[Trace]:
    """The traces of a file. A last line without its end was cut off in writing and is passed over."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith("\n"):
                    yield _parse_line(line, path, number)
    except (OSError, UnicodeDecodeError) as error:
        raise TraceUnreadable(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _drop_cut_line(path: Path) -> None:
    """Cut a file back to its last line end, reading from its end."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = file.seek(max(0, end - BLOCK_BYTES))
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                end = start + place + 1
                break
            end = start
        file.truncate(end)


def _parse_line(line: str, path: Path, number: int) -> Trace:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceUnreadable(f"{path}, line {number}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise TraceUnreadable(f"{path}, line {number}: not a trace")
    try:
        return trace_from_json(data)
    except TraceUnreadable as error:
        raise TraceUnreadable(f"{path}, line {number}: {error}") from None


def _plain(value: Any) -> Json:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _encode(value: Any, table: dict[Passage, int]) -> Any:
    """Dataclasses as objects without their defaults, actions with their kind, passages as places in the table."""
    kind = type(value)
    # By exact type, plain values first: traces are written by the thousand, and most of one is such values.
    if kind in _LEAVES:
        return value
    if kind is Passage:
        return table.setdefault(value, len(table))
    if kind is tuple:
        return [_encode(item, table) for item in value]
    if is_dataclass(kind):
        head, shape = _shape(kind)
        return head | {name: _encode(v, table) for name, default in shape if (v := getattr(value, name)) != default}
    return dict(value) if isinstance(value, Mapping) else value


@cache
def _shape(kind: type) -> tuple[Json, tuple[tuple[str, Any], ...]]:
    """What an action is named by, and the fields of a dataclass with their defaults; asked for thousands of times."""
    head = {"kind": kind.__name__} if kind.__name__ in _ACTIONS else {}
    return head, tuple((field.name, field.default) for field in fields(kind))


class _Reader:
    def __init__(self, table: list[Passage]) -> None:
        self._table = table

    def trace(self, data: Mapping[str, Any]) -> Trace:
        return _build(
            Trace,
            data,
            question=_question(data["question"]),
            nodes=tuple(_node(node) for node in data["nodes"]),
            steps=tuple(self._step(step) for step in data["steps"]),
            citations=tuple(self._citation(citation) for citation in data.get("citations", ())),
            usage=_build(Usage, data.get("usage", {})),
            effort=_effort(data.get("effort")),
        )

    def _step(self, data: Json) -> Step:
        return _build(
            Step,
            data,
            observation=self._observation(data["observation"]),
            generation=_generation(data.get("generation")),
            action=_action(data.get("action")),
            applied=_action(data.get("applied")),
            found=self._passages(data.get("found", ())),
        )

    def _observation(self, data: Json) -> Observation:
        return _build(
            Observation,
            data,
            known=tuple(_build(Known, known) for known in data.get("known", ())),
            passages=self._passages(data.get("passages", ())),
            context=tuple(data.get("context", ())),
            notes=tuple((code, text) for code, text in data.get("notes", ())),
            legal=tuple(data.get("legal", ())),
            effort=_effort(data.get("effort")),
        )

    def _citation(self, data: Json) -> Citation:
        return _build(Citation, data, passage=self._table[data["passage"]])

    def _passages(self, places: Iterable[int]) -> tuple[Passage, ...]:
        return tuple(self._table[place] for place in places)


def _question(data: Json) -> Question:
    return _build(Question, data, answers=tuple(data.get("answers", ())), context=tuple(data.get("context", ())))


def _node(data: Json) -> Node:
    return _build(Node, data, children=tuple(data.get("children", ())))


def _effort(data: Json | None) -> Effort | None:
    return _build(Effort, data) if data else None


def _generation(data: Json | None) -> Generation | None:
    if data is None:
        return None
    numbers = {name: tuple(data.get(name, ())) for name in ("prompt_ids", "token_ids", "logprobs")}
    return _build(Generation, data, **numbers)


def _action(data: Json | None) -> Any:
    if data is None:
        return None
    return _build(_ACTIONS[data["kind"]], {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()})


def _build(kind: type[_Noun], data: Mapping[str, Any], **read: Any) -> _Noun:
    """An instance of what is known in `data`; `read` holds the fields that are not plain."""
    known: Json = vars(kind)["__dataclass_fields__"]
    return kind(**{name: value for name, value in data.items() if name in known} | read)
