"""Example traces for a report: some right, some wrong, from all benchmarks, as plain lines.

Which ones follows from their ids, not from their looks: nobody picked them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from jade.engine.record import trace_from_json
from jade.evaluate.board import Column
from jade.evaluate.cell import CellResult, Finished
from jade.evaluate.record import Record
from jade.types import Answer, Malformed, Note, Query, Selection, Step, SubQuestions, Trace, Workflow

MAX_CHARS = 160
SHOWN = 10
"""Examples of each kind that a report has."""


@dataclass(frozen=True, slots=True)
class Example:
    benchmark: str
    record: Record
    trace: Trace


def choose_examples(column: Column, *, right: bool) -> list[Example]:
    """Questions answered exactly, or with no word in common with the gold answer, taken from each benchmark in turn.

    Of pooled runs the first one's are shown. Traces are large: a run that was moved without them has a report all the
    same, without examples.
    """
    picked = [_pick(cell, right) for cell in column.cells.values() if cell.runs[0].files.traces.is_file()]
    in_turn = [pick for round_ in zip_longest(*picked) for pick in round_ if pick is not None]
    return [_example(cell, place) for cell, place in in_turn[:SHOWN]]


def outline(trace: Trace) -> list[str]:
    """The trace as lines: every node with its question, and below it what each step brought."""
    return [line for line in _outline(trace) if line.strip()]


def _pick(cell: CellResult, right: bool) -> list[tuple[CellResult, int]]:
    records = cell.runs[0].records
    wanted = [place for place, record in enumerate(records) if (_is_right if right else _is_wrong)(record)]
    drawn = sorted(wanted, key=lambda place: hashlib.sha256(records[place].id.encode()).digest())
    return [(cell, place) for place in drawn[:SHOWN]]


def _is_right(record: Record) -> bool:
    return record.scores["em"] == 1.0


def _is_wrong(record: Record) -> bool:
    return record.scores["f1"] == 0.0


def _example(cell: CellResult, place: int) -> Example:
    run = cell.runs[0]
    return Example(cell.cell.benchmark, run.records[place], _trace(run, place))


def _trace(run: Finished, place: int) -> Trace:
    """The trace of a record: the line of the same number, without reading those before it as traces."""
    with run.files.traces.open(encoding="utf-8") as file:
        return trace_from_json(json.loads(next(islice(file, place, None))))


def _outline(trace: Trace) -> Iterator[str]:
    nodes = {node.id: node for node in trace.nodes}
    current = None
    for step in trace.steps:
        indent = "  " * step.node.count(".")
        if step.node != current:
            current = step.node
            yield f"{indent}{clip(nodes[current].question)}"
        yield f"{indent}  {step.role:<3} {describe(step)}"
    if trace.error:
        yield f"error: {clip(trace.error)}"


def describe(step: Step) -> str:
    """What a step brought, on one line."""
    if step.error:
        return f"error: {clip(step.error)}"
    match step.action:
        case Malformed(reason):
            written = step.generation.text if step.generation else ""
            return f"malformed ({reason}): {clip(written)}"
        case Workflow():
            return str(step.action)
        case SubQuestions(questions):
            return clip(" | ".join(questions), 2 * MAX_CHARS)
        case Selection(indices):
            return ", ".join(f"Document{index}" for index in indices) or "none"
        case Query(text) | Answer(text) | Note(text):
            return clip(text)
        case None:
            return _found(step)


def _found(step: Step) -> str:
    titles = [passage.title or clip(passage.text, 40) for passage in step.found]
    return clip(f"“{step.observation.question}” → {'; '.join(titles) or 'nothing'}", 2 * MAX_CHARS)


def clip(text: str, length: int = MAX_CHARS) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def all_examples(column: Column) -> Sequence[tuple[str, list[Example]]]:
    return ("Right", choose_examples(column, right=True)), ("Wrong", choose_examples(column, right=False))
