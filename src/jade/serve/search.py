"""Full-text search over lines of traces, without an index: reading is faster than keeping one would be worth.

Bytes are compared first. Only a word that could also be the name of a field or a token id is then looked up in the
texts themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, get_args

from pydantic_core import from_json

from jade.types import (
    Action,
    Citation,
    Effort,
    Generation,
    Known,
    Malformed,
    Node,
    Observation,
    Passage,
    Question,
    Step,
    Trace,
    Usage,
)


def matcher(words: Sequence[str]) -> Callable[[bytes], bool]:
    """Whether a line's texts hold every word, whatever its case."""
    spellings = [_spellings(word) for word in words]
    doubtful = [word.casefold() for word in words if _may_be_structure(word.casefold())]

    def holds(line: bytes) -> bool:
        lowered = line.lower()
        found = all(any(spelling in lowered for spelling in of_word) for of_word in spellings)
        return found and (not doubtful or _holds(line, doubtful))

    return holds


def _spellings(word: str) -> set[bytes]:
    """How a word may stand in a line of JSON that was lowered byte by byte: cases beyond ASCII are spelt apart."""
    cases = {word, word.lower(), word.upper(), word.capitalize(), word.casefold()}
    escaped = {json.dumps(case)[1:-1].lower().encode() for case in cases}
    return escaped | {json.dumps(case, ensure_ascii=False)[1:-1].encode("utf-8", "replace").lower() for case in cases}


_CODES = frozenset({"schema", "kind", "prompt_ids", "token_ids", "logprobs", "finish", "role", "node", "parent"})
"""Fields that hold codes and numbers, not text."""
_FIELDS = " ".join(
    field.name
    for kind in (Trace, Question, Node, Step, Observation, Generation, Passage, Citation, Usage, Known, Effort)
    for field in fields(kind)
)
_KINDS = " ".join(kind.__name__ for kind in (*get_args(Action), Malformed))
_STRUCTURE = f"{_FIELDS} {_KINDS} {' '.join(_CODES)} passages true false null".casefold()
"""All that stands in a line beside texts and numbers."""


def _may_be_structure(word: str) -> bool:
    return word in _STRUCTURE or not any(char.isalpha() for char in word)


def _holds(line: bytes, words: Sequence[str]) -> bool:
    """Whether the texts of a line hold the words; a broken line has none."""
    try:
        data = from_json(line)
    except ValueError:
        return False
    text = "\n".join(_texts(data)).casefold()
    return all(word in text for word in words)


def _texts(data: Any) -> Iterator[str]:
    """Every text of a trace; field names and codes are not text."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for name, value in data.items():
            if name not in _CODES:
                yield from _texts(value)
    elif isinstance(data, list):
        for item in data:
            yield from _texts(item)
