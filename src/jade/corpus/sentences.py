"""Where sentences end, and how many words stand between. Rules, not a model: the same text is always cut alike.

A sentence ends at `.`, `!`, `?` or `…` before a space, at a blank line, and at their Chinese and Japanese
counterparts. It goes on before a small letter, and where the full stop belongs to an abbreviation or an initial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

ABBREVIATED = (
    "adj al approx apr art assn assoc aug ave bros ca cap capt cf ch co col corp dec dept dist dr ed eds eg est etc "
    "ex feb fig figs fl gen gov hon inc jan jr jul jun lt ltd mar messrs mgr mr mrs ms mt mts no nos nov oct op "
    "p pl pp prof pt rd rep rev sec sen sep sept sgt sr ss st ste univ vol vols vs"
)
ABBREVIATIONS = frozenset(ABBREVIATED.split())
CLOSING = r"[\"'”’»)\]]*+"
WIDE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters of scripts without spaces: each counts as a word."""
SENTENCE_END = re.compile(rf"(?<![.!?…])(?P<stop>[.!?…]++){CLOSING}(?=\s)|[。！？]+[」』”’）]*|\n[ \t\r]*+(?=\n)")
"""Nothing is looked at twice, so that a megabyte of full stops takes no longer than one of prose."""
WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]{{1,50}}")
"""A run of letters without a space; one without end counts every 50 characters, so that nothing grows unbounded."""
LAST_WORD = re.compile(r"[\w.]+$")
NEXT_LETTER = re.compile(r"\s+[\"'“‘«(\[]*(\w)?")
LOOK_BACK = 24


class Sentence(NamedTuple):
    """A stretch of a text without the white space around it."""

    start: int
    end: int
    num_words: int


def split_sentences(text: str, start: int = 0) -> Iterator[Sentence]:
    """The sentences from `start` on, in order. Together they hold every character that is not white space."""
    for found in SENTENCE_END.finditer(text, start):
        if found["stop"] and _goes_on(text, found):
            continue
        if (sentence := _trimmed(text, start, found.end())) is not None:
            yield sentence
        start = found.end()
    if (sentence := _trimmed(text, start, len(text))) is not None:
        yield sentence


def split_at_words(text: str, sentence: Sentence, words: int) -> Iterator[Sentence]:
    """Pieces of at most so many words, for sentences that are too long to stay whole."""
    found = WORD.finditer(text, sentence.start, sentence.end)
    while piece := [word.span() for word in islice(found, words)]:
        yield Sentence(piece[0][0], piece[-1][1], len(piece))


def has_at_most(text: str, words: int) -> bool:
    """Whether a text has no more than so many words; most short ones need no counting."""
    return (text.isascii() and len(text) < 2 * words) or count_words(text) <= words


def count_words(text: str, start: int = 0, end: int | None = None) -> int:
    return len(WORD.findall(text, start, len(text) if end is None else end))


def _trimmed(text: str, start: int, end: int) -> Sentence | None:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    end = start + len(piece.strip())
    return Sentence(start, end, count_words(text, start, end)) if start < end else None


def _goes_on(text: str, found: re.Match[str]) -> bool:
    """Whether the sentence continues after this stop."""
    following = NEXT_LETTER.match(text, found.end())
    if following and following[1] and following[1].islower():
        return True
    before = LAST_WORD.search(text, max(0, found.start() - LOOK_BACK), found.start())
    if found["stop"] != "." or before is None:
        return False
    word = before[0]
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    return is_initial or "." in word.strip(".") or word.lower() in ABBREVIATIONS
