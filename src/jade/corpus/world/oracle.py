"""Look a question up by its words: what a scripted team needs to play an oracle.

Sub-questions are there too, with `#1` filled in by the right answer, as questions of one round.
"""

from __future__ import annotations

import re
from typing import Any

from jade.corpus.world.model import World
from jade.types import Question


def oracle(world: World) -> dict[str, Question]:
    """Question text -> its record, for all questions of the world and all their sub-questions."""
    known = {question.text: question for question in world.questions}
    for question in world.questions:
        hops = question.metadata["decomposition"]
        for number, text in enumerate(filled(hops)):
            if text not in known:
                known[text] = _single(f"{question.id}.{number + 1}", text, question, number)
    return known


def filled(decomposition: list[dict[str, Any]]) -> list[str]:
    """The sub-questions with every `#1` replaced by the answer it stands for."""

    def answer(reference: re.Match[str]) -> str:
        return str(decomposition[int(reference[1]) - 1]["answer"])

    return [re.sub(r"#(\d+)", answer, hop["question"]) for hop in decomposition]


def _single(identity: str, text: str, question: Question, number: int) -> Question:
    hop = question.metadata["decomposition"][number]
    metadata = {
        "kind": "single",
        "form": "chain",
        "hops": 1,
        "workflow": "one-round",
        "decomposition": [{**hop, "question": text}],
        "supporting_titles": [hop["support"]],
        "facts": [question.metadata["facts"][number]],
    }
    return Question(identity, text, (hop["answer"],), question.dataset, metadata)
