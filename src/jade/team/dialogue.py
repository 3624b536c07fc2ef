"""The searcher: one policy that searches and answers within one context (Search-R1), as a role like any other.

Its notes are what happened so far: a search, how many of the passages it brought, a remark. The policy may think
aloud; its first `<search>` or `<answer>` counts, and what follows it is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jade.team.parse import salvage_answer, short_answer, visible
from jade.team.render import MAX_PASSAGE_WORDS, describe_outset, quote
from jade.types import Answer, Malformed, Observation, Passage, Query

SEARCHER = "S1"
SEARCHED, FOUND = "search", "found"
LAST_TURN = ("remark", "no further search is possible: write the answer")
UNREADABLE = ("remark", "that was neither a search nor an answer: write one of them")
_MOVE = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_OUR_TAG = re.compile(r"<(?=/?(?:search|information|answer)>)")


def parse_move(text: str, seen: Observation) -> Query | Answer | Malformed:
    """The first search or answer in an output."""
    found = _MOVE.search(visible(text))
    if not found:
        return Malformed("neither <search>…</search> nor <answer>…</answer>")
    kind, body = found[1], " ".join(found[2].split())
    if not body:
        return Malformed(f"nothing inside <{kind}>")
    if kind == "search":
        return Malformed("a search where none is left") if LAST_TURN in seen.notes else Query(body)
    return short_answer(body)


def salvage_move(text: str, seen: Observation) -> Answer | None:
    """On the last turn anything said is better than nothing; before it the policy gets another turn."""
    said = salvage_answer(text) if LAST_TURN in seen.notes else ""
    return Answer(said) if said else None


def describe_dialogue(seen: Observation, choices: tuple[str, ...] | None = None) -> str:
    """The context so far: the question, then every search with what it brought, in order."""
    return "\n".join([*describe_outset(seen), f"Question: {quote(seen.question)}", *_turns(seen)])


def _turns(seen: Observation) -> Iterator[str]:
    passages = iter(seen.passages)
    for kind, text in seen.notes:
        if kind == SEARCHED:
            yield f"<search>{_inert(quote(text))}</search>"
        elif kind == FOUND:
            shown = [_shown(next(passages)) for _ in range(int(text))]
            yield "\n".join(["<information>", *(shown or ["nothing"]), "</information>"])
        else:
            yield f"({text})"


def _shown(passage: Passage) -> str:
    title = f"{quote(passage.title)}: " if passage.title else ""
    return _inert(f"{title}{quote(passage.text, MAX_PASSAGE_WORDS)}")


def _inert(text: str) -> str:
    """Text in which none of our own tags can begin."""
    return _OUR_TAG.sub("< ", text)
