"""Finished runs, written by hand: two benchmarks, three methods, known scores, costs and times; or any answers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from jade.evaluate.record import record_of
from jade.evaluate.store import Cell, CellFiles, Timing, open_run
from jade.types import (
    Answer,
    Generation,
    Malformed,
    Node,
    Observation,
    Passage,
    Question,
    Step,
    SubQuestions,
    Trace,
    Usage,
    Workflow,
)

SETTINGS = {
    "seed": 0,
    "split": "test",
    "limit": None,
    "index": "an-index",
    "sampling": {"temperature": 0.0},
    "backbone": {"model": "a-model"},
    "retrieval": {"k": 2},
}
HOSTILE = "<script>alert(1)</script> | [x](y) **b**"
GOLD = Passage("1", "Page of gold", "It was Ada Lovelace who wrote it.")
OTHER = Passage("2", "Other page", "Something else stands here.")
RIGHT, HALF, WRONG = "Ada Lovelace", "Ada", "nobody"
"""Answers with an F1 of 1, 2/3 and 0."""

# For each method the answers to the ten questions of a benchmark, cycled; gold is always "Ada Lovelace".
ANSWERS = {
    "vanilla-rag": ("Ada Lovelace", "Ada", "nobody", HOSTILE),
    "no-retrieval": ("nobody",),
    "jade": ("Ada Lovelace", "Ada Lovelace", "nobody", "Ada Lovelace"),
}


def write_run(
    folder: Path, *, methods: tuple[str, ...] = tuple(ANSWERS), variants: int = 0, num_questions: int = 10
) -> Path:
    open_run(folder, SETTINGS, {"versions": {"python": "3"}})
    for benchmark, method, variant in itertools.product(("hotpotqa", "nq"), methods, range(variants + 1)):
        files = CellFiles(folder, Cell(benchmark, method, variant))
        files.folder.mkdir(parents=True)
        for place in range(num_questions):
            trace = make_trace(benchmark, method, place, shift=variant)
            timing = Timing(trace.question.id, place // 6, 2.0 * place, 2.0 * place + 1.0, 1.0)
            files.append(trace, timing, record_of(trace))
    return folder


def write_answers(
    folder: Path, answers: dict[str, list[str]], *, method: str = "vanilla-rag", first: int = 0, **settings: Any
) -> Path:
    """A run of one method that gave these answers, by benchmark; the gold answer is always "Ada Lovelace"."""
    open_run(folder, SETTINGS | settings, {"versions": {}})
    for benchmark, given in answers.items():
        files = CellFiles(folder, Cell(benchmark, method))
        files.folder.mkdir(parents=True)
        for place, answer in enumerate(given, start=first):
            trace = make_trace(benchmark, method, place, answer=answer)
            timing = Timing(trace.question.id, 0, 2.0 * place, 2.0 * place + 1.0, 1.0)
            files.append(trace, timing, record_of(trace))
    return folder


def make_trace(benchmark: str, method: str, place: int, shift: int = 0, answer: str | None = None) -> Trace:
    answers = ANSWERS[method]
    answer = answer or answers[(place + shift) % len(answers)]
    metadata = {"supporting_titles": ["Page of gold", "Missing page"]} if benchmark == "hotpotqa" else {}
    question = Question(
        f"{benchmark}-{place}", f"Who wrote number {place}? {HOSTILE}", ("Ada Lovelace",), benchmark, metadata
    )
    make = {"jade": _split, "vanilla-rag": _retrieve, "no-retrieval": _recall}[method]
    return make(question, answer, place)


def _generation(text: str) -> Generation:
    return Generation(text, prompt_tokens=100, completion_tokens=10)


def _step(number: int, node: str, role: str, action: object, found: tuple[Passage, ...] = (), **seen: object) -> Step:
    observation = Observation("Who?", **seen)  # type: ignore[arg-type]
    generation = None if role == "R" else _generation(str(action))
    applied = None if isinstance(action, Malformed) else action
    return Step(f"{node}:{number}", node, 1, role, observation, generation, action, applied, found)  # type: ignore[arg-type]


def _trace(question: Question, nodes: tuple[Node, ...], steps: tuple[Step, ...], answer: str, rounds: int) -> Trace:
    calls = sum(step.generation is not None for step in steps)
    retrievals = sum(step.role == "R" for step in steps)
    usage = Usage(calls, rounds, retrievals, 100 * calls, 10 * calls, 1.0)
    return Trace(f"{question.id}@0", question, nodes, steps, answer, usage=usage)


def _recall(question: Question, answer: str, place: int) -> Trace:
    node = Node("0", None, question.text, question.text, answer, workflow="AG")
    return _trace(question, (node,), (_step(0, "0", "AG", Answer(answer)),), answer, 1)


def _retrieve(question: Question, answer: str, place: int) -> Trace:
    node = Node("0", None, question.text, question.text, answer, workflow="R,AG")
    found = (GOLD, OTHER) if place % 2 else (OTHER, GOLD)
    steps = (_step(0, "0", "R", None, found), _step(1, "0", "AG", Answer(answer), passages=found))
    return _trace(question, (node,), steps, answer, 1)


def _split(question: Question, answer: str, place: int) -> Trace:
    root = Node("0", None, question.text, question.text, answer, ("0.1", "0.2"), "QDP")
    children = tuple(Node(f"0.{n}", "0", f"Part {n}?", f"Part {n}?", "Ada Lovelace", workflow="R,AG") for n in (1, 2))
    plan = Malformed("not of the form") if place == 0 else Workflow(("QDP",))
    steps = (
        _step(0, "0", "P", plan),
        _step(1, "0", "QDP", SubQuestions(("Part 1?", "Part 2?"))),
        *(
            step
            for child in ("0.1", "0.2")
            for step in (_step(0, child, "R", None, (GOLD,)), _step(1, child, "AG", Answer("Ada"), passages=(GOLD,)))
        ),
        _step(2, "0", "AS", Answer(answer)),
    )
    return _trace(question, (root, *children), steps, answer, 3)
