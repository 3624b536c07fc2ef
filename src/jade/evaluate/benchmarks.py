"""Benchmarks are rows of one table; their questions come from a folder, the Hugging Face hub, or one's own file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jade.corpus.questions import numbered_questions
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


def load_benchmarks(
    names: Sequence[str], data: str = "", split: str = "test", limit: int | None = None
) -> dict[str, list[Question]]:
    """The questions of several benchmarks, by the names under which results are written: no two may share one."""
    given: dict[str, str] = {}
    for name in dict.fromkeys(names):
        called = find_benchmark(name).name
        if called in given:
            raise ConfigError(
                f"benchmarks {given[called]} and {name} are both called {called}: rename one of the files"
            )
        given[called] = name
    return {called: load_questions(name, data, split, limit) for called, name in given.items()}


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
    if found is None:  # one of our layout is named, and one of the collections': each stands there in two suffixes
        raise DocumentError(f"no {split} split of {row.name} in {data}: looked for {candidates[0]} and {candidates[2]}")
    return found


def _candidates(row: Benchmark, split: str) -> Iterator[str]:
    """Where a split may lie: our flat layout first, then a folder for each set, then its published split."""
    yield from (f"{row.stem or row.name}.{split}{suffix}" for suffix in SUFFIXES)
    splits = (split, row.published) if split == "test" and row.published != "test" else (split,)
    for name in splits:
        yield from (f"{folder}/{name}{suffix}" for folder in (row.name, *row.folders) for suffix in SUFFIXES)


def read_questions(path: Path, dataset: str) -> Iterator[Question]:
    """Every line of a file as a question. No id may stand there twice: records are told apart by it."""
    seen: dict[str, int] = {}
    for number, question in numbered_questions(path, dataset):
        if question.id in seen:
            raise DocumentError(f"{path}:{number}: id {question.id!r} stands already in line {seen[question.id]}")
        seen[question.id] = number
        yield question


def choose(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """At most `limit` questions: by a hash of their ids, so that a smaller part always lies within a larger one."""
    if limit is None or limit >= len(questions):
        return list(questions)
    if limit < 1:
        raise ConfigError(f"limit {limit}: at least one question is needed")
    chosen = {question.id for question in sorted(questions, key=_drawn)[:limit]}
    return [question for question in questions if question.id in chosen]


def _drawn(question: Question) -> str:
    return hashlib.sha256(question.id.encode()).hexdigest()
