"""Which questions of a file are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jade.config import load_config
from jade.corpus.questions import supporting_titles
from jade.errors import ConfigError, DocumentError
from jade.evaluate.benchmarks import read_questions
from jade.learn.questions import is_in_part, read_question_file, read_question_files
from jade.reward.metrics import f1
from jade.types import Question

HALVES = ((0.0, 0.5), (0.5, 1.0))


def test_two_halves_of_a_file_share_nothing_and_miss_nothing(tmp_path: Path) -> None:
    path = tmp_path / "nq.train.jsonl"
    rows = [{"id": f"q{n}", "question": f"who is {n}?", "golden_answers": ["x"]} for n in range(200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    first, second = (read_question_files("learn.questions", [path], part=part)[0] for part in HALVES)
    assert {q.id for q in first} | {q.id for q in second} == {row["id"] for row in rows}
    assert len(first) + len(second) == 200
    assert 70 < len(first) < 130


def test_a_part_stays_the_same_when_the_file_grows(tmp_path: Path) -> None:
    few, many = ([Question(f"q{n}", "?", ("x",), "nq") for n in range(count)] for count in (20, 40))
    taken = [q.id for q in few if is_in_part(q, HALVES[0])]
    assert [q.id for q in many if is_in_part(q, HALVES[0])][: len(taken)] == taken


def test_a_part_that_runs_backwards_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"learn\.part: .*from and to must rise"):
        load_config(None, ["learn.part=[0.5, 0.5]"])


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"golden_answers": "Ada"}, "'golden_answers' is not a list of texts but 'Ada'"),
        ({"golden_answers": []}, "'golden_answers' is empty"),
        ({"golden_answers": [" "]}, "'golden_answers' is empty"),
        ({"question": " "}, "'question' is not a text but ' '"),
        ({"metadata": "hops"}, "'metadata' is not a JSON object but str"),
    ],
)
def test_a_question_that_nothing_could_be_learned_from_is_refused_by_its_line(
    tmp_path: Path, fields: dict[str, object], complaint: str
) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"id": 1, "question": "Who wrote Emma?", "golden_answers": ["Ada"]} | fields))
    with pytest.raises(DocumentError, match=rf"own\.jsonl:1: {complaint}"):
        read_question_file(path)


def test_what_is_learned_from_is_read_as_what_is_measured_on(tmp_path: Path) -> None:
    """A blank gold answer was right for an article alone, a reading context stood in every trace that was written, and
    evidence that is named by supporting facts was none to keep apart from tests."""
    path = tmp_path / "own.jsonl"
    facts = {"supporting_facts": {"title": ["Emma", "Emma"]}, "context": {"title": ["Emma"]}}
    row = {"id": 1, "question": " Who wrote Emma? ", "golden_answers": [" Ada ", ""], "metadata": facts}
    path.write_text(json.dumps(row))
    (learned,), (measured,) = read_question_file(path), read_questions(path, "own")
    assert learned == measured
    assert f1("the", learned.answers) == 0.0
    assert supporting_titles(learned) == ("Emma",)


def test_a_part_without_a_question_is_refused_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"id": 1, "question": "Who wrote Emma?", "golden_answers": ["Ada"]}))
    with pytest.raises(ConfigError, match=r"learn\.part: .* holds no question of .*own\.jsonl"):
        read_question_files("learn.questions", [path], part=(0.0, 1e-9))
