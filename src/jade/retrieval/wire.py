"""Search-R1's retrieval protocol, both directions: the shapes that travel over HTTP.

    POST /retrieve  {"queries": [...], "topk": 3, "return_scores": true}
                    {"result": [[{"document": {"id", "contents"}, "score": 0.9}, ...], ...]}

Without `return_scores` the documents stand in the list bare. `contents` is the title, quoted, then the text below.
"""

from __future__ import annotations

import math
from typing import Any

from jade.received import whole
from jade.types import Passage

ROUTE = "/retrieve"


def to_document(passage: Passage) -> dict[str, Any]:
    """A document that Search-R1 clients understand, with our own fields beside theirs."""
    return {
        "id": passage.id,
        "contents": f'"{passage.title}"\n{passage.text}',
        "title": passage.title,
        "text": passage.text,
        "source": passage.source,
    }


def to_result(passages: list[Passage], return_scores: bool) -> list[dict[str, Any]]:
    if not return_scores:
        return [to_document(passage) for passage in passages]
    return [{"document": to_document(passage), "score": passage.score} for passage in passages]


def from_result(item: Any, source: str) -> Passage:
    """A passage from either form; ValueError says what is wrong with it."""
    if not isinstance(item, dict):
        raise ValueError("a result is not an object")
    document = item.get("document", item)
    score = item.get("score", 0.0) if "document" in item else 0.0
    if not isinstance(document, dict) or not isinstance(score, (int, float)) or not math.isfinite(score):
        raise ValueError("a result has no document and score")
    title, text = map(whole, _title_and_text(document))
    found_id = document.get("id", document.get("doc_id"))
    return Passage(
        id=whole(str(found_id)) if isinstance(found_id, (str, int)) else f"{title}\n{text}",
        title=title,
        text=text,
        source=whole(document["source"]) if isinstance(document.get("source"), str) else source,
        score=float(score),
    )


def _title_and_text(document: dict[str, Any]) -> tuple[str, str]:
    title, text = document.get("title"), document.get("text")
    if isinstance(text, str):
        return title if isinstance(title, str) else "", text
    contents = document.get("contents")
    if not isinstance(contents, str):
        raise ValueError("a document has neither contents nor text")
    first, line_end, rest = contents.partition("\n")
    return (first.strip().strip('"'), rest) if line_end else ("", contents)
