"""Text into the terms that BM25 counts: lower case, accents folded, the commonest English words left out.

Chosen on the dev questions of six benchmarks over 201,677 passages: no stemmer gained on the whole (it helps
paraphrase and hurts names), single letters and folding help names, and a title that counts twice helps most.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

TERMS_VERSION = 1
"""Raised when the same text gives other terms: an index made with one version cannot be searched with another."""
TITLE_WEIGHT = 2
COMMONEST = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
    "this to was will with"
)
STOP_WORDS = frozenset(COMMONEST.split())
WIDE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters of scripts without spaces: each is a term."""
TERM = re.compile(rf"[{WIDE}]|[^\W_{WIDE}]+")
SPACED = {code: chr(code) if chr(code).isalnum() else " " for code in range(128)}
"""For ASCII text, as nearly all text is after folding: whatever is no letter or digit becomes a space. Gives the terms
that `TERM` would find, but faster."""
ACCENTS = re.compile("[\u0300-\u036f]+")
DASHES_AND_QUOTES = re.compile("[\u2000-\u206f]+")


def terms_of(text: str) -> list[str]:
    """All terms in the order of the text, stop words included."""
    folded = fold(text)
    return folded.translate(SPACED).split() if folded.isascii() else TERM.findall(folded)


def fold(text: str) -> str:
    """Lower case without accents, so that `Paraíba` and `paraiba` are one."""
    text = text.lower()
    if text.isascii():
        return text
    return DASHES_AND_QUOTES.sub(" ", ACCENTS.sub("", unicodedata.normalize("NFKD", text)))


def weighted(title: str, text: str) -> str:
    """What a passage is indexed by."""
    return f"{title}\n" * TITLE_WEIGHT + text if title else text


class Vocabulary(dict[str, int]):
    """Numbers for terms. Asking for a new one gives it the next number; stop words have none (-1)."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(STOP_WORDS, -1))

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self) - len(STOP_WORDS)
        return number

    def numbers(self, text: str) -> list[int]:
        return [number for term in terms_of(text) if (number := self[term]) >= 0]

    def known(self) -> dict[str, int]:
        return {term: number for term, number in self.items() if number >= 0}


def known_numbers(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The numbers of a query's terms; what no passage has, and stop words, are left out."""
    return [vocabulary[term] for term in terms_of(text) if term in vocabulary]
