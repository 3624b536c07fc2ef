"""Where a wrong question went wrong: the first place in the pipeline at which its evidence was lost."""

from __future__ import annotations

from enum import StrEnum

from jade.evaluate.evidence import found_in, has_evidence, read_in
from jade.reward.metrics import f1
from jade.types import Trace

RIGHT_FROM = 0.5
"""F1 from which an answer counts as right when failures are sorted."""


class Failure(StrEnum):
    """Where a wrong question went wrong, in the order of the pipeline."""

    ERROR = "error"
    NOT_RETRIEVED = "never retrieved"
    NOT_SELECTED = "retrieved, not selected"
    MISREAD = "selected, misread"
    LOST = "lost in synthesis"


def classify_failure(trace: Trace) -> Failure | None:
    """The first place where the evidence was lost; None when the answer is right."""
    question = trace.question
    if trace.error is not None:
        return Failure.ERROR
    if f1(trace.answer, question.answers) >= RIGHT_FROM:
        return None
    if any(f1(node.answer or "", question.answers) >= RIGHT_FROM for node in trace.nodes if node.parent is not None):
        return Failure.LOST
    if not has_evidence(found_in(trace.steps), question):
        return Failure.NOT_RETRIEVED
    return Failure.MISREAD if has_evidence(read_in(trace.steps), question) else Failure.NOT_SELECTED
