"""Files of questions: JSON lines in FlashRAG's fields (`id`, `question`, `golden_answers`, `metadata`).

Questions to learn from and questions to be measured on are read alike. Every line becomes a question or one clear
complaint that names the file and the line; nothing is skipped in silence.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from jade.errors import DocumentError
from jade.received import whole
from jade.types import Question

EXAMPLE = '{"id": "1", "question": "Who funded the survey?", "golden_answers": ["Wellcome Trust"]}'
"""A question with all that it needs, for those who write their own."""
DROPPED_METADATA = ("context", "supporting_facts")
"""Whole reading contexts would swell every trace; supporting facts are kept as their titles."""


def numbered_questions(path: Path, dataset: str) -> Iterator[tuple[int, Question]]:
    """Every line of a file as a question, with the line's number."""
    number = 0
    for number, text in _lines(path):
        yield number, _question(text, f"{path}:{number}", dataset)
    if not number:
        raise DocumentError(f"{path} holds no questions")


def supporting_titles(question: Question) -> tuple[str, ...]:
    """The titles of the pages that hold the evidence, where the question's metadata names them."""
    return tuple(question.metadata.get("supporting_titles") or ())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with _open(path) as file:
            yield from ((number, text) for number, text in enumerate(file, start=1) if text.strip())
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DocumentError(f"cannot read questions from {path}: {getattr(error, 'strerror', None) or error}") from None


def _open(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _question(text: str, where: str, dataset: str) -> Question:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{where}: not JSON ({error.msg} at character {error.pos + 1})") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        raise DocumentError(f"{where}: not JSON that can be read ({error})") from None
    if not isinstance(data, dict):
        raise DocumentError(f"{where}: not a JSON object but {type(data).__name__}")
    missing = [field for field in ("id", "question", "golden_answers") if field not in data]
    if missing:
        raise DocumentError(f"{where}: no field {missing[0]!r}; a question is {EXAMPLE}")
    asked, golds = _text(data["question"], where), _golds(data["golden_answers"], where)
    return Question(whole(str(data["id"])), asked, golds, dataset, _metadata(data.get("metadata"), where))


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DocumentError(f"{where}: 'question' is not a text but {value!r}")
    return whole(value.strip())


def _golds(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(gold, str) for gold in value):
        raise DocumentError(f"{where}: 'golden_answers' is not a list of texts but {value!r}")
    golds = tuple(dict.fromkeys(whole(gold.strip()) for gold in value if gold.strip()))
    if not golds:
        raise DocumentError(f"{where}: 'golden_answers' is empty, so nothing could be right")
    return golds


def _metadata(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DocumentError(f"{where}: 'metadata' is not a JSON object but {type(value).__name__}")
    kept = {key: entry for key, entry in value.items() if key not in DROPPED_METADATA}
    facts = value.get("supporting_facts")
    if "supporting_titles" not in kept and isinstance(facts, dict) and isinstance(facts.get("title"), list):
        kept["supporting_titles"] = list(dict.fromkeys(str(title) for title in facts["title"]))
    titles = kept.get("supporting_titles") or []
    if not isinstance(titles, list) or not all(isinstance(title, str) for title in titles):
        raise DocumentError(f"{where}: 'supporting_titles' is not a list of texts but {titles!r}")
    return kept
