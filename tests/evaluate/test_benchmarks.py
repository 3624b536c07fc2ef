"""Benchmarks: found in every layout, read completely, and refused in one clear line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jade.corpus.questions import supporting_titles
from jade.errors import ConfigError, DocumentError
from jade.evaluate.benchmarks import (
    BENCHMARKS,
    choose,
    find_benchmark,
    load_questions,
    read_questions,
)
from jade.learn.questions import read_question_file
from jade.learn.warmstart.gold import lesson_of
from jade.types import Question


def line(id: str = "q1", question: str = "Who?", **fields: Any) -> dict[str, Any]:
    return {"id": id, "question": question, "golden_answers": ["Ada"], **fields}


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("benchmark", "path"),
    [
        ("hotpotqa", "hotpotqa.test.jsonl"),
        ("hotpotqa", "hotpotqa.test.jsonl.gz"),
        ("hotpotqa", "hotpotqa/test.jsonl"),
        ("hotpotqa", "hotpotqa/dev.jsonl"),
        ("2wiki", "2wikimultihopqa/dev.jsonl"),
        ("ambigqa", "ambig_qa/dev.jsonl.gz"),
        ("world", "questions.test.jsonl"),
    ],
)
def test_a_benchmark_is_found_in_every_layout(tmp_path: Path, benchmark: str, path: str) -> None:
    write(tmp_path / path, line(), line("q2", golden_answers=["Ada", "Ada", " Bob "]))
    questions = load_questions(benchmark, str(tmp_path))
    assert [(question.id, question.answers, question.dataset) for question in questions] == [
        ("q1", ("Ada",), benchmark),
        ("q2", ("Ada", "Bob"), benchmark),
    ]


def test_ones_own_file_of_questions_is_a_benchmark(tmp_path: Path) -> None:
    path = write(tmp_path / "our set.jsonl", line())
    assert load_questions(str(path))[0].dataset == "our-set"


def test_a_split_that_published_tables_report_never_stands_in_for_dev(tmp_path: Path) -> None:
    write(tmp_path / "hotpotqa/test.jsonl", line())
    with pytest.raises(DocumentError, match="no dev split of hotpotqa"):
        load_questions("hotpotqa", str(tmp_path), split="dev")


def test_supporting_titles_are_read_from_either_form_and_contexts_are_left_behind(tmp_path: Path) -> None:
    facts = {"supporting_facts": {"title": ["Ada", "Ada", "Bob"], "sent_id": [0, 1, 0]}, "context": {"title": ["x"]}}
    titles = {"supporting_titles": ["Cy"], "type": "bridge"}
    write(tmp_path / "2wiki.test.jsonl", line("a", metadata=facts), line("b", metadata=titles), line("c"))
    a, b, c = load_questions("2wiki", str(tmp_path))
    assert [supporting_titles(question) for question in (a, b, c)] == [("Ada", "Bob"), ("Cy",), ()]
    assert set(a.metadata) == {"supporting_titles"}
    assert b.metadata["type"] == "bridge"


def test_whoever_leaves_a_field_out_is_shown_a_question_that_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        list(read_questions(write(tmp_path / "own.jsonl", {"question": "Who?"}), "own"))
    _, _, shown = str(caught.value).partition("a question is ")
    (question,) = read_questions(write(tmp_path / "own.jsonl", shown), "own")
    assert question.answers


def test_the_questions_of_the_page_are_read_and_taught(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
    path = write(tmp_path / "own.jsonl", *page.partition("```json\n")[2].partition("\n```")[0].split("\n"))
    one, two = read_questions(path, "own")
    assert read_question_file(path) == [one, two]
    assert supporting_titles(two) == ("Kestrel", "Hugo Brandt")
    assert [lesson_of(question).kind for question in (one, two)] == ["one-round", "QDS"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('{"id": ', "2: not JSON"),
        ("[1]", "2: not a JSON object but list"),
        ({"id": "x", "golden_answers": ["a"]}, "2: no field 'question'"),
        ({"id": "x", "question": "Who?"}, "2: no field 'golden_answers'"),
        ({"question": "Who?", "golden_answers": ["a"]}, "2: no field 'id'"),
        (line("x", golden_answers=[]), "2: 'golden_answers' is empty"),
        (line("x", golden_answers=[" "]), "2: 'golden_answers' is empty"),
        (line("x", golden_answers="Ada"), "2: 'golden_answers' is not a list of texts but 'Ada'"),
        (line("x", golden_answers=[1]), "2: 'golden_answers' is not a list of texts"),
        (line("x", question=" "), "2: 'question' is not a text"),
        (line("x", metadata=[]), "2: 'metadata' is not a JSON object but list"),
        (line("x", metadata={"supporting_titles": "Emma"}), "2: 'supporting_titles' is not a list of texts but 'Emma'"),
        ('{"id": ' + "1" * 5000 + "}", "2: not JSON that can be read (Exceeds the limit"),
        ('{"id": ' + "[" * 100_000, "2: not JSON that can be read"),
        (line("q1"), "2: id 'q1' stands already in line 1"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, row: dict[str, Any] | str, complaint: str) -> None:
    write(tmp_path / "nq.test.jsonl", line(), row)
    with pytest.raises(DocumentError) as caught:
        load_questions("nq", str(tmp_path))
    assert f"nq.test.jsonl:{complaint}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_character_in_a_question_is_made_whole(tmp_path: Path) -> None:
    """It could not be sent to a model, nor written into a report."""
    (question,) = read_questions(write(tmp_path / "own.jsonl", line("a\ud800", question="Wh\udfffo?")), "own")
    assert (question.id, question.text) == ("a?", "Wh?o?")


def test_an_unknown_benchmark_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown benchmark 'hotpot': choose from nq, popqa"):
        find_benchmark("hotpot")


def test_files_that_are_missing_empty_or_cut_off_say_so(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="is not a folder"):
        load_questions("nq", str(tmp_path / "nowhere"))
    with pytest.raises(DocumentError, match=r"looked for nq\.test\.jsonl and nq/test\.jsonl"):
        load_questions("nq", str(tmp_path))
    with pytest.raises(ConfigError, match="no data given for nq"):
        load_questions("nq")
    with pytest.raises(DocumentError, match="No such file"):
        load_questions(str(tmp_path / "mine.jsonl"))
    write(tmp_path / "nq.test.jsonl", "")
    with pytest.raises(DocumentError, match="holds no questions"):
        load_questions("nq", str(tmp_path))
    cut = write(tmp_path / "squad.test.jsonl.gz", *(line(str(i)) for i in range(500)))
    whole = cut.read_bytes()
    cut.write_bytes(whole[:-40])
    with pytest.raises(DocumentError, match="cannot read questions from"):
        load_questions("squad", str(tmp_path))
    cut.write_bytes(whole[:100] + bytes(100) + whole[200:])
    with pytest.raises(DocumentError, match=r"cannot read questions from .* while decompressing data"):
        load_questions("squad", str(tmp_path))


ids = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=40, unique=True)


@given(ids, st.integers(1, 40), st.integers(1, 40))
def test_a_smaller_limit_takes_a_part_of_a_larger_one_in_the_files_order(
    names: list[str], one: int, other: int
) -> None:
    questions = [Question(name, "Who?", ("Ada",)) for name in names]
    smaller, larger = (choose(questions, limit) for limit in sorted((one, other)))
    assert [question for question in larger if question in smaller] == smaller
    assert [question for question in questions if question in larger] == larger
    assert len(smaller) == min(one, other, len(names))


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="limit 0"):
        choose([Question("a", "Who?"), Question("b", "Who?")], 0)


def test_every_question_of_the_real_benchmarks_is_read(benchmark_data: Path) -> None:
    sizes = {name: len(load_questions(name, str(benchmark_data))) for name in BENCHMARKS if name != "world"}
    assert sizes == {
        "nq": 2873,
        "popqa": 856,
        "ambigqa": 2002,
        "hotpotqa": 1000,
        "2wiki": 1000,
        "musique": 500,
        "bamboogle": 125,
        "triviaqa": 1000,
        "squad": 250,
    }
