"""An observation as text. What was retrieved or said by others is quoted as data, on one line each.

Chat-template markers inside such text are broken up, so that a passage can neither end the user's turn nor open
another one, and line breaks are folded, so that it cannot pretend to be a further document.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from jade.received import whole
from jade.types import Observation, Passage

Describe = Callable[[Observation, tuple[str, ...] | None], str]
"""How what a role sees is written down; the plans are named to a planner that may not choose freely."""
MAX_PASSAGE_WORDS = 160
MAX_WORD_CHARS = 32
"""How long the words of what is cut may be on the average: a file packed as letters is one word of any length."""
_IN_ANGLES = r"s|bos|eos|pad|unk|sop|eop|(?:start|end)_of_turn|think|tool_call|tool_response|<SYS>"
_IN_BRACKETS = r"INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|gMASK"
_MARKER = re.compile(rf"<(?=[|｜]|</SYS>>|/?(?:{_IN_ANGLES})>)|[|｜](?=[>\]])|\[(?=\||/?(?:{_IN_BRACKETS})\])")
"""Where the special tokens of the common chat templates begin or end: `<|im_end|>`, `</s>`, `[INST]`, …"""


@lru_cache(maxsize=16384)
def quote(text: str, max_words: int | None = None) -> str:
    """Foreign text on one line, without anything a chat template would take for its own."""
    read = text if max_words is None else text[: max_words * MAX_WORD_CHARS]
    words = _MARKER.sub(r"\g<0> ", whole(read)).split()
    cut = len(read) < len(text) or (max_words is not None and len(words) > max_words)
    return " ".join([*words[:max_words], "…"] if cut else words)


def describe(seen: Observation, choices: tuple[str, ...] | None = None) -> str:
    """The user part of a prompt. `choices` are named when the planner may not choose freely."""
    lines = _earlier(seen)
    lines += [_document(number, passage) for number, passage in enumerate(seen.passages)]
    lines += [f"{code}: {quote(text, MAX_PASSAGE_WORDS)}" for code, text in seen.notes]
    lines += [f"Known: {quote(known.question)} {quote(known.answer)}" for known in seen.known]
    lines += _prices(seen)
    if choices:
        lines.append(f"Choose one of: {' | '.join(choices)}")
    return "\n".join([*lines, _question(seen)])


def ask_first(describe: Describe) -> Describe:
    """The same, with the question before all that is read as well as after it."""
    return lambda seen, choices: f"{_question(seen)}\n{describe(seen, choices)}"


def describe_outset(seen: Observation) -> list[str]:
    """What is said before any work, in lines: earlier turns of the conversation, and what work costs."""
    return [*_earlier(seen), *_prices(seen)]


def _question(seen: Observation) -> str:
    return f"Question: {quote(seen.question)}"


def _earlier(seen: Observation) -> list[str]:
    return [f"Earlier: {quote(turn, MAX_PASSAGE_WORDS)}" for turn in seen.context]


def _prices(seen: Observation) -> list[str]:
    effort = seen.effort
    return [f"Prices: turn {effort.alpha:.2f}, search {effort.beta:.2f}"] if effort else []


def _document(number: int, passage: Passage) -> str:
    title = f" ({quote(passage.title, MAX_PASSAGE_WORDS)})" if passage.title else ""
    return f"Document{number}{title}: {quote(passage.text, MAX_PASSAGE_WORDS)}"
