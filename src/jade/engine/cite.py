"""Citations: what each answered node rests on, and whether the final answer stands in any of it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from jade.reward.metrics import contains, normalise
from jade.types import Citation, Node, Passage

Evidence = tuple[str, tuple[Passage, ...]]
AS_TYPED = str.maketrans({**dict.fromkeys("‘’‚‛“”„‟‐‑‒–", "'"), "—": " "})
"""Typeset quotes and hyphens as typed ones, which comparing answers passes over; a long dash parts words."""
JOINED = ";"
"""What stands between the answers of independent parts."""


def cite(nodes: Sequence[Node], evidence: Iterable[Evidence]) -> tuple[Citation, ...]:
    """Number the passages that each node's answerer was shown, in the order of the nodes."""
    answers = {node.id: node.answer or "" for node in nodes}
    shown = [(node, passage) for node, passages in evidence for passage in passages]
    return tuple(
        Citation(number, node, passage, holds(passage, answers[node]))
        for number, (node, passage) in enumerate(shown, start=1)
    )


def holds(passage: Passage, answer: str) -> bool:
    """Whether the passage or its title contains the answer, after normalisation, as whole words. Documents are typeset
    and models type."""
    said = _as_typed(answer)
    return bool(normalise(said)) and contains(_as_typed(f"{passage.title} {passage.text}"), said)


def is_supported(answer: str, citations: Sequence[Citation]) -> bool:
    """Whether a cited passage holds the answer, or one each of its parts; yes and no stand in no text, so for them any
    citation counts."""
    if normalise(answer) in ("yes", "no"):
        return bool(citations)
    parts = [part for part in answer.split(JOINED) if normalise(part)]
    return bool(parts) and all(any(holds(citation.passage, part) for citation in citations) for part in parts)


def _as_typed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(AS_TYPED)
