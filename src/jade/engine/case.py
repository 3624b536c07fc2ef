"""A question as it was put, and the trace that it ends as, whoever worked it and however far they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from jade.engine.budget import Account, has_failed
from jade.engine.cite import Evidence, cite, is_supported
from jade.types import Effort, Node, Question, Role, Step, Trace

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


def ask_for(text: str, context: Sequence[str] = ()) -> Question:
    """A question under an id that follows from its words, so that the same seed gives the same draws."""
    words = "\n".join([*context, text]).encode("utf-8", "surrogatepass")
    return Question(blake2b(words, digest_size=6).hexdigest(), text, context=tuple(context))


def trace_id(question: Question, seed: int) -> str:
    return f"{question.id}@{seed}"


def failed_if_unsearched(trace: Trace) -> Trace:
    """The trace as it is shown to whoever asked: where every search failed, the answer rests on no document, so the
    question counts as failed.

    Where a team is measured or trained the answer stays, and the failed steps are counted.
    """
    searches = [step for step in trace.steps if step.role == Role.RETRIEVAL]
    if trace.error or not searches or not all(map(has_failed, searches)):
        return trace
    return replace(trace, error=f"every search failed, the last one with {searches[-1].error}")


def _last_error(steps: Sequence[Step]) -> str | None:
    return next((step.error for step in reversed(steps) if step.error), None)
