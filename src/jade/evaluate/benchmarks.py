"""Benchmarks are rows of one table; their questions come from a folder, the Hugging Face hub, or one's own file.

Questions are JSON lines in FlashRAG's fields (`id`, `question`, `golden_answers`, `metadata`). Every line becomes a
question or one clear complaint that names the file and the line; nothing is skipped in silence.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from jade.errors import ConfigError, DocumentError
from jade.evaluate.hub import HUB_PREFIX, fetch
from jade.types import Question


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One row: how the set is called, how it is printed, and under which names its files are found."""

    name: str
    title: str
    multi_hop: bool | None = None
    """Whether its questions need several searches; None where some do and some do not, or nobody knows."""
    folders: tuple[str, ...] = ()
    """What collections call its folder, where that differs from `name`."""
    published: str = "test"
    """The split that published tables report; taken for `test` where a collection has no file of that name."""
    stem: str = ""
    """The file's name before `.<split>.jsonl`; empty means `name`."""


BENCHMARKS: Mapping[str, Benchmark] = {
    row.name: row
    for row in (
        Benchmark("nq", "NQ", multi_hop=False),
        Benchmark("popqa", "PopQA", multi_hop=False),
        Benchmark("ambigqa", "AmbigQA", multi_hop=False, folders=("ambig_qa",), published="dev"),
        Benchmark("hotpotqa", "HotpotQA", multi_hop=True, published="dev"),
        Benchmark("2wiki", "2Wiki", multi_hop=True, folders=("2wikimultihopqa",), published="dev"),
        Benchmark("musique", "MuSiQue", multi_hop=True, published="dev"),
        Benchmark("bamboogle", "Bamboogle", multi_hop=True),
        Benchmark("triviaqa", "TriviaQA", multi_hop=False),
        Benchmark("squad", "SQuAD", multi_hop=False, published="dev"),
        Benchmark("world", "World", stem="questions"),
    )
}
SUFFIXES = (".jsonl", ".jsonl.gz")
EXAMPLE = '{"id": "1", "question": "Who funded the survey?", "golden_answers": ["Wellcome Trust"]}'
"""A question with all that it needs, for those who write their own."""
DROPPED_METADATA = ("context", "supporting_facts")
"""Whole reading contexts would swell every trace; supporting facts are kept as their titles."""


def find_benchmark(name: str) -> Benchmark:
    """The row of that name; a path to a JSON lines file is a benchmark of its own."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    if name.endswith(SUFFIXES):
        return Benchmark(own_name(name), own_name(name))
    raise ConfigError(f"unknown benchmark {name!r}: choose from {', '.join(BENCHMARKS)}, or give a .jsonl file")


def own_name(path: str) -> str:
    """`runs/My set.jsonl.gz` as a name that can also be a folder's: `My-set`."""
    stem = Path(path).name.removesuffix(".gz").removesuffix(".jsonl")
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in stem).strip(".") or "own"


def load_questions(name: str, data: str = "", split: str = "test", limit: int | None = None) -> list[Question]:
    """The questions of a benchmark, in the order of its file; `limit` takes the same part in every run."""
    row = find_benchmark(name)
    path = Path(name) if name not in BENCHMARKS else locate(row, data, split)
    return choose(list(read_questions(path, row.name)), limit)


def locate(row: Benchmark, data: str, split: str) -> Path:
    """The file of a split, in a folder or on the hub."""
    if not data:
        raise ConfigError(f"no data given for {row.name}: name a folder of questions, or {HUB_PREFIX} for the hub")
    candidates = list(_candidates(row, split))
    if data.startswith(HUB_PREFIX):
        return fetch(data.removeprefix(HUB_PREFIX), [path for path in candidates if "/" in path])
    folder = Path(data)
    if not folder.is_dir():
        raise DocumentError(f"{data} is not a folder: give one that holds {candidates[0]}")
    found = next((folder / path for path in candidates if (folder / path).is_file()), None)
    if found is None:
        raise DocumentError(f"no {split} split of {row.name} in {data}: looked for {candidates[0]} and {candidates[2]}")
    return found


def _candidates(row: Benchmark, split: str) -> Iterator[str]:
    """Where a split may lie: our flat layout first, then a folder for each set, then its published split."""
    yield from (f"{row.stem or row.name}.{split}{suffix}" for suffix in SUFFIXES)
    splits = (split, row.published) if split == "test" and row.published != "test" else (split,)
    for name in splits:
        yield from (f"{folder}/{name}{suffix}" for folder in (row.name, *row.folders) for suffix in SUFFIXES)


def read_questions(path: Path, dataset: str) -> Iterator[Question]:
    """Every line of a file as a question."""
    seen: dict[str, int] = {}
    for number, text in _lines(path):
        question = _question(text, f"{path}:{number}", dataset)
        if question.id in seen:
            raise DocumentError(f"{path}:{number}: id {question.id!r} stands already in line {seen[question.id]}")
        seen[question.id] = number
        yield question
    if not seen:
        raise DocumentError(f"{path} holds no questions")


def choose(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """At most `limit` questions: by a hash of their ids, so that a smaller part always lies within a larger one."""
    if limit is None or limit >= len(questions):
        return list(questions)
    if limit < 1:
        raise ConfigError(f"limit {limit}: at least one question is needed")
    chosen = {question.id for question in sorted(questions, key=_drawn)[:limit]}
    return [question for question in questions if question.id in chosen]


def supporting_titles(question: Question) -> tuple[str, ...]:
    """The titles of the pages that hold the evidence, where the benchmark names them."""
    return tuple(question.metadata.get("supporting_titles") or ())


def _drawn(question: Question) -> str:
    return hashlib.sha256(question.id.encode()).hexdigest()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with _open(path) as file:
            yield from ((number, text) for number, text in enumerate(file, start=1) if text.strip())
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(f"cannot read questions from {path}: {reason}") from None


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _question(text: str, where: str, dataset: str) -> Question:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{where}: not JSON ({error.msg} at character {error.pos + 1})") from None
    if not isinstance(data, dict):
        raise DocumentError(f"{where}: not a JSON object but {type(data).__name__}")
    missing = [field for field in ("id", "question", "golden_answers") if field not in data]
    if missing:
        raise DocumentError(f"{where}: no field {missing[0]!r}; a question is {EXAMPLE}")
    question = Question(str(data["id"]), _text(data["question"], where), _golds(data["golden_answers"], where), dataset)
    return replace(question, metadata=_metadata(data.get("metadata"), where))


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DocumentError(f"{where}: 'question' is not a text but {value!r}")
    return value.strip()


def _golds(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(gold, str) for gold in value):
        raise DocumentError(f"{where}: 'golden_answers' is not a list of texts but {value!r}")
    golds = tuple(_unique(gold.strip() for gold in value if gold.strip()))
    if not golds:
        raise DocumentError(f"{where}: 'golden_answers' is empty, so nothing could be right")
    return golds


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _metadata(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DocumentError(f"{where}: 'metadata' is not a JSON object but {type(value).__name__}")
    kept = {key: entry for key, entry in value.items() if key not in DROPPED_METADATA}
    facts = value.get("supporting_facts")
    if "supporting_titles" not in kept and isinstance(facts, dict) and isinstance(facts.get("title"), list):
        kept["supporting_titles"] = _unique(str(title) for title in facts["title"])
    return kept
