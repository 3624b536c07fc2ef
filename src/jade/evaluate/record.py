"""A question's record: what was answered, how good it is, what it cost and how it went.

A record follows from the trace alone and holds nothing that depends on the clock, so that a run which was killed
and started again writes the same bytes. Seconds go into the timings beside it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from jade.corpus.questions import supporting_titles
from jade.engine.budget import BUDGET_SPENT
from jade.errors import TraceUnreadable
from jade.evaluate.evidence import answer_rank, found_in, title_recall
from jade.evaluate.failures import classify_failure
from jade.reward.metrics import accuracy, exact_match, f1, precision, recall
from jade.reward.outcome import outcome
from jade.reward.selection import kept_in
from jade.types import Malformed, Question, Step, Trace

_Row = TypeVar("_Row")
SCORES: Mapping[str, Callable[[str, Sequence[str]], float]] = {
    "em": exact_match,
    "f1": f1,
    "precision": precision,
    "recall": recall,
    "accuracy": accuracy,
}


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a records file."""

    id: str
    question: str
    answer: str
    golds: list[str]
    scores: dict[str, float]
    """`SCORES`, and `outcome`: the reward's own reading, in which yes and no count by exact match."""
    cost: dict[str, int]
    """Calls, rounds, retrievals, prompt and completion tokens."""
    workflow: str
    """What ran for the question itself."""
    depth: int
    malformed: dict[str, list[int]]
    """By role: outputs that could not be read, and all outputs."""
    answer_rank: int | None
    title_recall: float | None
    failure: str | None
    stopped: str
    failed_steps: int
    """Steps that raised, also where the question was still answered; those that a budget refused did not."""
    trace: str
    error: str | None
    selection: dict[str, int] | None = None
    """What was selected (`reward.selection.Kept`); None where nobody selected, and in older records."""


_RECORD = TypeAdapter(Record)


def record_of(trace: Trace) -> Record:
    """The record that a trace makes; one that ended in an error scores 0 in everything."""
    usage, question, kept = trace.usage, trace.question, kept_in(trace)
    said = "" if trace.error is not None else trace.answer
    scores = {name: score(said, question.answers) for name, score in SCORES.items()}
    return Record(
        id=question.id,
        question=question.text,
        answer=trace.answer,
        golds=list(question.answers),
        scores=scores | {"outcome": outcome(trace)},
        cost={
            "calls": usage.calls,
            "rounds": usage.rounds,
            "retrievals": usage.retrievals,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        },
        workflow=trace.nodes[0].workflow,
        depth=max(node.id.count(".") for node in trace.nodes),
        malformed=count_malformed(trace.steps),
        answer_rank=answer_rank(trace),
        title_recall=title_recall(found_in(trace.steps), supporting_titles(question)),
        failure=classify_failure(trace),
        stopped=trace.stopped,
        failed_steps=sum(not error.endswith(BUDGET_SPENT) for step in trace.steps if (error := step.error)),
        trace=trace.id,
        error=trace.error,
        selection=asdict(kept) if kept else None,
    )


def count_malformed(steps: Sequence[Step]) -> dict[str, list[int]]:
    """By role, in the order of its code: malformed outputs and all outputs."""
    written = Counter(step.role for step in steps if step.generation is not None)
    broken = Counter(step.role for step in steps if isinstance(step.action, Malformed))
    return {role: [broken[role], written[role]] for role in sorted(written)}


def dump_record(record: Record) -> str:
    return json.dumps({name: getattr(record, name) for name in Record.__slots__})


def parse_record(line: str, where: str) -> Record:
    """The record that a line holds."""
    return read_line(_RECORD, line, f"{where}: not a record of this version")


def read_line(row: TypeAdapter[_Row], line: str, complaint: str) -> _Row:
    """What a line of JSON holds, each field of its own type; what it has beside them is passed over."""
    try:
        return row.validate_python(json.loads(line))
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
    raise TraceUnreadable(f"{complaint} ({why})")


def is_of(record: Record, question: Question) -> bool:
    """Whether a record was made for exactly this question."""
    return (record.id, record.question, tuple(record.golds)) == (question.id, question.text, question.answers)
