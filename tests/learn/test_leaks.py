"""What is kept for measuring stays out of examples and of training, seen where a command asks for either."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from learn_builders import make_step
from learn_runs import WordRetriever, make_config

from jade.config import Config
from jade.engine.record import append_traces
from jade.learn.check import check_training
from jade.learn.warmstart.best import ORIGIN
from jade.learn.warmstart.collect import collect, plan_course
from jade.types import Answer, Node, Observation, Passage, Question, Trace

PAGES = [
    Passage("1", "Emma", "Emma was written by Jane Austen."),
    Passage("2", "Jane Austen", "Jane Austen was born in Steventon."),
    Passage("3", "Ulysses", "Ulysses was written by James Joyce."),
    Passage("4", "Dracula", "Dracula was written by Bram Stoker."),
]
MEASURED = Question(
    "m1", "Where was Jane Austen born?", ("Steventon",), metadata={"supporting_titles": ["Jane Austen"]}
)
BY_TEXT = Question("t1", "where was JANE AUSTEN born", ("Hampshire",))
BY_HOP = Question(
    "t2",
    "Where was the author of Emma born?",
    ("Hampshire",),
    metadata={
        "decomposition": [
            {"question": "Emma >> author", "answer": "Jane Austen"},
            {"question": "#1 >> place of birth", "answer": "Hampshire"},
        ]
    },
)
BY_EVIDENCE = Question(
    "t3", "In which village did Austen first live?", ("Steventon",), metadata={"supporting_titles": ["Jane Austen"]}
)
CLEAN = Question("t4", "Who wrote Ulysses?", ("James Joyce",), metadata={"supporting_titles": ["Ulysses"]})
LEAKING = [BY_TEXT, BY_HOP, BY_EVIDENCE]


def write_questions(path: Path, *questions: Question) -> str:
    rows = [
        {"id": q.id, "question": q.text, "golden_answers": list(q.answers), "metadata": dict(q.metadata)}
        for q in questions
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def make_own_trace(question: Question) -> Trace:
    """The team answered it, and rightly."""
    said = Answer(question.answers[0])
    step = make_step(0, "AG", action=said, observation=Observation(question.text, passages=tuple(PAGES[:1])))
    return Trace(question.id, question, (Node("0", None, question.text, question.text),), (step,), question.answers[0])


@pytest.fixture
def files(tmp_path: Path, index: Path) -> Mapping[str, str]:
    return {
        "train": write_questions(tmp_path / "set.train.jsonl", *LEAKING, CLEAN),
        "measured": write_questions(tmp_path / "set.test.jsonl", MEASURED),
        "index": str(index),
    }


async def test_a_course_teaches_nothing_that_is_held_out_and_learns_from_the_teams_own_traces(
    tiny_model: Path, tmp_path: Path, files: Mapping[str, str]
) -> None:
    own = Question("t5", "Who wrote Dracula?", ("Bram Stoker",), "set")
    # Ids count within a dataset: this one leaks, and its namesake of another set does not.
    namesake = Question("t5", BY_HOP.text, BY_HOP.answers, "other", BY_HOP.metadata)
    append_traces(tmp_path / "own.jsonl", map(make_own_trace, [*LEAKING, namesake, own]))
    warmstart = {
        "questions": [files["train"]],
        "held_out": [files["measured"]],
        "best_traces": [str(tmp_path / "own.jsonl")],
    }
    config = make_config(tiny_model, {"retrieval": {"index": files["index"]}, "warmstart": warmstart})
    course = plan_course(config)
    assert [lesson.question.id for lesson in course.lessons] == ["t4"]
    assert course.leaks.dropped == {"question": 2, "evidence": 1}
    assert [trace.question.text for trace in course.own_traces] == [own.text]

    examples = await collect(config, course, WordRetriever(PAGES))
    asked = {origin: [e.prompt.user for e in examples if e.origin == origin] for origin in ("set", ORIGIN)}
    assert asked["set"]
    assert all(CLEAN.text in user for user in asked["set"])
    assert len(asked[ORIGIN]) == 1
    assert own.text in asked[ORIGIN][0]


@pytest.mark.parametrize("measured", ["dev", "held_out"])
def test_training_can_leave_out_what_shares_a_hop_or_its_evidence(
    tiny_model: Path, files: Mapping[str, str], measured: str
) -> None:
    settings: dict[str, Any] = {
        "backbone": {"model": str(tiny_model), "device": "cpu"},
        "retrieval": {"index": files["index"]},
        "learn": {"questions": [files["train"]], measured: [files["measured"]], "overlap": "drop"},
    }
    (kept,) = check_training(Config.model_validate(settings)).train
    assert [question.id for question in kept] == ["t4"]
