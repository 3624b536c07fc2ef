"""Documents into passages: whole sentences, about a hundred words, each pointing back at its place.

Every character of a document's body that is not white space is in some passage; without overlap it is in exactly
one. The same document under the same settings gives the same passages with the same ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jade.corpus.documents import Document
from jade.corpus.sentences import Sentence, has_at_most, split_at_words, split_sentences
from jade.errors import ConfigError
from jade.types import Passage

LONGEST_SENTENCE = 2
"""A sentence of more than this many passages' words is cut inside."""
SMALL_REST = 4
"""What is left at the end joins the passage before it when it is smaller than a passage by this factor."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """How long passages are."""

    words: int = 100
    """Words in a passage, about: the sentence that would exceed it starts the next one."""
    overlap: int = 0
    """Words at a passage's end that the next one repeats, at least; whole sentences."""
    row_words: int = 400
    """A row of a JSONL corpus up to this length is a passage already and stays whole."""

    def __post_init__(self) -> None:
        if self.words < 1:
            raise ConfigError(f"words is {self.words}: a passage needs at least 1")
        if not 0 <= self.overlap < self.words:
            raise ConfigError(f"overlap is {self.overlap}: it must be from 0 to less than words ({self.words})")


def cut_passages(document: Document, cutting: Cutting | None = None) -> list[Passage]:
    """The passages of one document, in order."""
    cutting = cutting or Cutting()
    if document.place and has_at_most(document.text, cutting.row_words):
        source = f"{document.name}:{document.place}"
        return [Passage(_id(document), document.title, document.text.strip(), source)]
    spans = _spans(document, cutting)
    return [
        Passage(f"{_id(document)}#{number}", document.title, document.text[start:end], _source(document, start, end))
        for number, (start, end) in enumerate(spans, start=1)
    ]


def _spans(document: Document, cutting: Cutting) -> Iterator[tuple[int, int]]:
    sentences = [
        piece
        for sentence in split_sentences(document.text, document.start)
        for piece in _short_enough(document.text, sentence, cutting)
    ]
    for first, last in _groups([sentence.num_words for sentence in sentences], cutting):
        yield sentences[first].start, sentences[last].end


def _short_enough(text: str, sentence: Sentence, cutting: Cutting) -> Iterator[Sentence]:
    if sentence.num_words > LONGEST_SENTENCE * cutting.words:
        yield from split_at_words(text, sentence, cutting.words)
    else:
        yield sentence


def _groups(lengths: Sequence[int], cutting: Cutting) -> list[tuple[int, int]]:
    """First and last sentence of every passage."""
    groups: list[tuple[int, int]] = []
    # `new` is the first sentence that no passage has yet; with overlap a passage begins before it.
    first = new = 0
    while new < len(lengths):
        last, total = new, sum(lengths[first : new + 1])
        while last + 1 < len(lengths) and total + lengths[last + 1] <= cutting.words:
            last += 1
            total += lengths[last]
        groups.append((first, last))
        first, new = _back_from(lengths, first, last, cutting.overlap), last + 1
    # Only what is new counts as a rest: what it repeats stands in the passage before already.
    if len(groups) > 1 and sum(lengths[groups[-2][1] + 1 :]) * SMALL_REST < cutting.words:
        groups[-2:] = [(groups[-2][0], groups[-1][1])]
    return groups


def _back_from(lengths: Sequence[int], first: int, last: int, overlap: int) -> int:
    """Where the next passage starts: far enough back to repeat `overlap` words, and always ahead of this one."""
    start, repeated = last + 1, 0
    while repeated < overlap and start - 1 > first:
        start -= 1
        repeated += lengths[start]
    return start


def _id(document: Document) -> str:
    return document.own_id or (f"{document.name}:{document.place}" if document.place else document.name)


def _source(document: Document, start: int, end: int) -> str:
    page = f"page {bisect_right(document.pages, start)}" if document.pages else ""
    return ":".join(filter(None, (document.name, document.place, page, f"chars {start}-{end}")))
