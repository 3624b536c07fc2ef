"""One line of the viewer's list: what a trace is about and how it went, read without building the trace.

Only the named fields become Python objects, which is what makes a file of ten thousand traces open in a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from jade.reward.metrics import exact_match, f1, is_yes_no

RIGHT_FROM = 0.5
"""Score from which an answer counts as right."""


class _Action(BaseModel):
    kind: str = ""


class _Step(BaseModel):
    role: str
    action: _Action | None = None
    error: str | None = None


class _Node(BaseModel):
    workflow: str = ""


class _Question(BaseModel):
    id: str
    text: str
    answers: list[str] = []
    dataset: str = ""


class _Usage(BaseModel):
    calls: int = 0
    rounds: int = 0
    retrievals: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class _Trace(BaseModel):
    id: str
    question: _Question
    nodes: list[_Node]
    steps: list[_Step]
    answer: str
    usage: _Usage = _Usage()
    stopped: str = ""
    error: str | None = None
    supported: bool = False


@dataclass(slots=True)
class Row:
    """A trace in the list. `key` names it in links; `score` is None where no gold answer is known."""

    key: str
    question_id: str
    question: str
    dataset: str
    part: str
    answer: str
    golds: list[str]
    score: float | None
    workflow: str
    num_malformed: int
    error: str | None
    stopped: str
    supported: bool
    calls: int
    rounds: int
    retrievals: int
    tokens: int
    seconds: float

    @property
    def verdict(self) -> str:
        if self.score is None:
            return "unscored"
        return "right" if self.score >= RIGHT_FROM else "wrong"

    @property
    def flags(self) -> Iterator[str]:
        if self.error:
            yield "error"
        if self.num_malformed:
            yield "malformed"
        if self.stopped:
            yield "stopped"
        if not self.supported:
            yield "unsupported"

    def show(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict, "flags": list(self.flags)}


def read_row(line: bytes, part: str, default_dataset: str) -> Row:
    """The row of one line of a trace file; a line that is no trace is a row that says so."""
    try:
        trace = _Trace.model_validate_json(line)
    except ValidationError as error:
        return _unreadable(part, default_dataset, f"not a trace: {error.errors()[0]['msg']}")
    usage, golds = trace.usage, trace.question.answers
    return Row(
        key=trace.id,
        question_id=trace.question.id,
        question=trace.question.text,
        dataset=trace.question.dataset or default_dataset,
        part=part,
        answer=trace.answer,
        golds=golds,
        score=_score(trace),
        workflow=trace.nodes[0].workflow if trace.nodes else "",
        num_malformed=sum(step.action is not None and step.action.kind == "Malformed" for step in trace.steps),
        error=trace.error,
        stopped=trace.stopped,
        supported=trace.supported,
        calls=usage.calls,
        rounds=usage.rounds,
        retrievals=usage.retrievals,
        tokens=usage.prompt_tokens + usage.completion_tokens,
        seconds=usage.seconds,
    )


def _score(trace: _Trace) -> float | None:
    golds = trace.question.answers
    if not golds:
        return None
    if trace.error is not None:
        return 0.0
    return (exact_match if is_yes_no(golds) else f1)(trace.answer, golds)


def _unreadable(part: str, dataset: str, error: str) -> Row:
    return Row("unreadable", "", "", dataset, part, "", [], None, "", 0, error, "", False, 0, 0, 0, 0, 0.0)
