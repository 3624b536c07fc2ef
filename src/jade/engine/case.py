"""A question as it was put, and the trace that it ends as, whoever worked it and however far they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jade.engine.budget import Account
from jade.engine.cite import Evidence, cite, is_supported
from jade.types import Effort, Node, Question, Step, Trace

ROOT = "0"


@dataclass(frozen=True, slots=True)
class Case:
    question: Question
    seed: int = 0
    effort: Effort | None = None

    @property
    def root(self) -> Node:
        return Node(ROOT, None, self.question.text, self.question.text)

    def close(
        self,
        account: Account,
        nodes: tuple[Node, ...],
        steps: tuple[Step, ...],
        answer: str,
        evidence: tuple[Evidence, ...] = (),
        error: str | None = None,
    ) -> Trace:
        """The trace. Where there is no answer, the last step that failed says why."""
        citations = cite(nodes, evidence)
        return Trace(
            id=trace_id(self.question, self.seed),
            question=self.question,
            nodes=nodes,
            steps=steps,
            answer=answer,
            citations=citations,
            usage=account.usage(),
            stopped=account.stopped,
            error=error or (None if answer else _last_error(steps)),
            seed=self.seed,
            effort=self.effort,
            supported=is_supported(answer, citations),
        )


def trace_id(question: Question, seed: int) -> str:
    return f"{question.id}@{seed}"


def _last_error(steps: Sequence[Step]) -> str | None:
    return next((step.error for step in reversed(steps) if step.error), None)
