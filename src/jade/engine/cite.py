"""Citations: what each answered node rests on, and whether the final answer stands in any of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jade.reward.metrics import contains, normalise
from jade.types import Citation, Node, Passage

Evidence = tuple[str, tuple[Passage, ...]]


def cite(nodes: Sequence[Node], evidence: Iterable[Evidence]) -> tuple[Citation, ...]:
    """Number the passages that each node's answerer was shown, in the order of the nodes."""
    answers = {node.id: node.answer or "" for node in nodes}
    shown = [(node, passage) for node, passages in evidence for passage in passages]
    return tuple(
        Citation(number, node, passage, holds(passage, answers[node]))
        for number, (node, passage) in enumerate(shown, start=1)
    )


def holds(passage: Passage, answer: str) -> bool:
    """Whether the passage or its title contains the answer, after normalisation, as whole words."""
    return bool(normalise(answer)) and contains(f"{passage.title} {passage.text}", answer)


def is_supported(answer: str, citations: Sequence[Citation]) -> bool:
    """Whether a cited passage holds the answer; yes and no stand in no text, so for them any citation counts."""
    if normalise(answer) in ("yes", "no"):
        return bool(citations)
    return any(holds(citation.passage, answer) for citation in citations)
