"""Parsers: a role's raw output becomes its action, or a Malformed that says why not. They never raise.

Each takes the text and what the role saw. A leading `<think>…</think>` block, as reasoning models write, is not
part of the output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jade.team.workflow import parse_workflow
from jade.types import Answer, Malformed, Observation, Query, Selection, SubQuestions, Workflow

MAX_ANSWER_WORDS = 40
_NUMBERED = re.compile(r"<q([1-9][0-9]{0,2})>(.*?)</q\1>", re.DOTALL)
_NUMBER_TAG = re.compile(r"</?q[0-9]+>")
_DOCUMENT = re.compile(r"Document([0-9]{1,4})")
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*>")


def visible(text: str) -> str:
    """The output without a leading block of thought."""
    thought, closed, output = text.partition("</think>")
    return output if closed and thought.lstrip().startswith("<think>") else text


def parse_plan(text: str, seen: Observation) -> Workflow | Malformed:
    return parse_workflow(visible(text), seen.legal)


def parse_subquestions(text: str, seen: Observation) -> SubQuestions | Malformed:
    output = visible(text)
    found = _NUMBERED.findall(output)
    if _NUMBERED.sub("", output).strip():
        return Malformed("text outside the <qN> tags" if found else "no <q1>…</q1>")
    questions = tuple(_one_line(body) for _, body in found)
    return _complaint_about(questions, [int(number) for number, _ in found], seen) or SubQuestions(questions)


def _complaint_about(questions: Sequence[str], numbers: Sequence[int], seen: Observation) -> Malformed | None:
    folded = [question.casefold() for question in questions]
    if numbers != list(range(1, len(numbers) + 1)):
        return Malformed("sub-questions are not numbered 1, 2, 3, … without gaps")
    if len(questions) < 2:
        return Malformed("fewer than two sub-questions")
    if not all(questions):
        return Malformed("an empty sub-question")
    if any(map(_NUMBER_TAG.search, questions)):
        return Malformed("a tag inside a sub-question")
    if len(set(folded)) < len(folded):
        return Malformed("a sub-question is repeated")
    if _one_line(seen.question).casefold() in folded:
        return Malformed("a sub-question is the question itself")
    return None


def parse_query(text: str, seen: Observation) -> Query | Malformed:
    body = _inside("query", text)
    return body if isinstance(body, Malformed) else Query(body)


def parse_selection(text: str, seen: Observation) -> Selection | Malformed:
    body = _inside("id", text, may_be_empty=True)
    if isinstance(body, Malformed):
        return body
    matches = [_DOCUMENT.fullmatch(name.strip()) for name in body.split(",")] if body else []
    indices = tuple(int(match[1]) for match in matches if match)
    if len(indices) < len(matches):
        return Malformed("a name that is not DocumentN")
    if len(set(indices)) < len(indices):
        return Malformed("a document is named twice")
    if any(index >= len(seen.passages) for index in indices):
        return Malformed(f"Document{max(indices)} was not shown")
    return Selection(indices)


def parse_answer(text: str, seen: Observation) -> Answer | Malformed:
    body = _inside("answer", text)
    return body if isinstance(body, Malformed) else short_answer(body)


def short_answer(body: str) -> Answer | Malformed:
    """What stands inside the tags of an answer, if it is no longer than one may be."""
    num_words = len(body.split())
    return Answer(body) if num_words <= MAX_ANSWER_WORDS else Malformed(f"an answer of {num_words} words")


def salvage_answer(text: str) -> str:
    """The first line of an output that has no proper answer tag, cut short: better than nothing, and penalised."""
    plain = _TAG.sub(" ", visible(text))
    line = next((line for line in plain.splitlines() if line.strip()), "")
    return " ".join(line.split()[:MAX_ANSWER_WORDS])


def _inside(tag: str, text: str, *, may_be_empty: bool = False) -> str | Malformed:
    output = visible(text).strip()
    opening, closing = f"<{tag}>", f"</{tag}>"
    if not (output.startswith(opening) and output.endswith(closing) and len(output) >= len(opening) + len(closing)):
        return Malformed(f"not of the form {opening}…{closing}")
    body = output[len(opening) : -len(closing)]
    if opening in body or closing in body:
        return Malformed(f"more than one {opening}")
    return _one_line(body) if body.strip() or may_be_empty else Malformed(f"nothing inside {opening}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
