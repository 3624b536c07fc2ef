"""One line of the viewer's list: what a trace is about and how it went, read without building the trace.

Most of a line is token ids and passages, which a row does not need. As our writer lays a trace out, both stand between
marks that cannot occur inside a JSON string, so they are stepped over unread; that is what makes a file of ten thousand
traces open in a second. A line that is laid out otherwise is parsed whole, to the same row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from jade.reward.outcome import score_of

SHOWN_CHARS = 500
RIGHT_FROM = 0.5
"""Score from which an answer counts as right."""


class _Action(BaseModel):
    kind: str = ""


class _Step(BaseModel):
    action: _Action | None = None


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
    answer: str
    usage: _Usage = _Usage()
    stopped: str = ""
    error: str | None = None
    supported: bool = False


class _WholeTrace(_Trace):
    steps: list[_Step]


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
        texts = {name: shorten(getattr(self, name)) for name in ("question", "answer", "error")}
        return {**asdict(self), **texts, "verdict": self.verdict, "flags": list(self.flags)}


def shorten(text: str | None) -> str | None:
    """As much of a text as a list has room for."""
    return text if text is None or len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def read_row(line: bytes, part: str, default_dataset: str) -> Row:
    """The row of one line of a trace file; a line that is no trace is a row that says so."""
    try:
        trace, num_malformed = _skim(line) or _parse(line)
    except ValidationError as error:
        return _unreadable(part, default_dataset, f"not a trace: {error.errors()[0]['msg']}")
    return _row(trace, num_malformed, part, default_dataset)


_STEPS, _AFTER_STEPS, _PASSAGES = b',"steps":[{', b'}],"answer":"', b',"passages":[{'
_MORE_AFTER, _MALFORMED = b'}],"', b'"action":{"kind":"Malformed"'


def _skim(line: bytes) -> tuple[_Trace, int] | None:
    """The trace without its steps and passages, and how many steps were malformed; None where the layout is another.

    Marks found at another depth than the trace's own leave a piece of unbalanced brackets, which does not parse, or a
    second list of steps behind them.
    """
    steps = line.find(_STEPS)
    answer = line.find(_AFTER_STEPS, steps)
    passages = line.find(_PASSAGES, answer)
    if min(steps, answer, passages) < 0 or _STEPS in line[answer:passages] or line.find(_MORE_AFTER, passages) >= 0:
        return None
    try:
        trace = _Trace.model_validate_json(line[:steps] + line[answer + 2 : passages] + b"}")
    except ValidationError:
        return None
    return trace, line.count(_MALFORMED, steps, answer)


def _parse(line: bytes) -> tuple[_Trace, int]:
    try:
        trace = _WholeTrace.model_validate_json(line)
    except ValidationError:
        trace = _WholeTrace.model_validate_json(_with_whole_characters(line))
    return trace, sum(step.action is not None and step.action.kind == "Malformed" for step in trace.steps)


def _with_whole_characters(line: bytes) -> bytes:
    """Half of a surrogate pair can be written in JSON and read by Python, but not by this parser: `?` in its place."""
    try:
        return json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return line


def _row(trace: _Trace, num_malformed: int, part: str, default_dataset: str) -> Row:
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
        num_malformed=num_malformed,
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
    """The trace's outcome; None where no gold answer is known."""
    golds = trace.question.answers
    if not golds:
        return None
    return score_of(trace.answer, tuple(golds)) if trace.error is None else 0.0


def _unreadable(part: str, dataset: str, error: str) -> Row:
    return Row("unreadable", "", "", dataset, part, "", [], None, "", 0, error, "", False, 0, 0, 0, 0, 0.0)
