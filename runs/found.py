#!/usr/bin/env python3
"""Questions that name no evidence, with the pages on which a search finds their answers.

    runs/found.py data/ambigqa.train.jsonl.gz --index data/index-eval --out data/ambigqa.found.jsonl.gz
    runs/found.py … --part 0 0.95 --apart data/nq.train.jsonl.gz

A question whose answer is among the first passages keeps the titles of the pages that hold it (`supporting_titles`), so
that training can be told apart from what is measured on by evidence, and not by the questions' words alone. One whose
answer is not found is left out: no rollout could be right. `--apart` leaves out what other files ask in the same words,
`--part` takes a part by a hash of the ids, as `learn.part` does.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path

from jade.config import RetrievalConfig
from jade.learn.questions import WHOLE, read_question_file, read_question_files
from jade.retrieval.open import open_retriever
from jade.reward.metrics import is_yes_no, normalise
from jade.reward.selection import holds_gold
from jade.types import Question


async def with_pages(questions: list[Question], index: Path, k: int) -> list[Question]:
    """Those of the questions whose answers are found, each with the pages that hold them."""
    retriever = open_retriever(RetrievalConfig(index=str(index)))
    try:
        lists = await retriever.search([question.text for question in questions], k)
    finally:
        await retriever.close()
    found = []
    for question, passages in zip(questions, lists, strict=True):
        titles = dict.fromkeys(one.title for one in passages if holds_gold(one, question))
        if titles and not is_yes_no(question.answers):
            found.append(replace(question, metadata={**question.metadata, "supporting_titles": list(titles)}))
    return found


def write_questions(path: Path, questions: list[Question]) -> None:
    rows = [
        {"id": each.id, "question": each.text, "golden_answers": list(each.answers), "metadata": dict(each.metadata)}
        for each in questions
    ]
    partial = path.with_name(f".{path.name}.partial")
    with gzip.open(partial, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="ends in .jsonl.gz")
    parser.add_argument("--k", type=int, default=20, help="passages of the search that are looked at")
    parser.add_argument("--apart", type=Path, nargs="*", default=[], help="files whose questions are left out")
    parser.add_argument("--part", type=float, nargs=2, default=WHOLE, metavar=("FROM", "TO"))
    options = parser.parse_args()
    (asked,) = read_question_files("questions.of", [options.questions], 0, tuple(options.part))
    known = {normalise(question.text) for path in options.apart for question in read_question_file(path)}
    new = [question for question in asked if normalise(question.text) not in known]
    found = asyncio.run(with_pages(new, options.index, options.k))
    write_questions(options.out, found)
    num_known, num_lost = len(asked) - len(new), len(new) - len(found)
    print(f"{len(found):,} of {len(asked):,} questions: {num_known:,} known, {num_lost:,} not found")


if __name__ == "__main__":
    main()
