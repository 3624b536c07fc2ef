"""A row that is skimmed from a line is the row that parsing the whole line gives."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builders import QUESTIONS, clumsy, make_traces

from jade.engine.record import dump_trace
from jade.serve import rows
from jade.serve.rows import read_row
from jade.types import Question, Trace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))
from trace_strategies import TRACES

MARKS = ('}],"answer":"', ',"steps":[{', ',"passages":[{', '}],"', '"action":{"kind":"Malformed"', "}],", '\\"', '"')


def parsed(line: bytes) -> rows.Row:
    trace, num_malformed = rows._parse(line)
    return rows._row(trace, num_malformed, "", "")


@given(TRACES)
def test_any_trace_is_skimmed_to_what_parsing_gives(trace: Trace) -> None:
    line = dump_trace(trace).encode()
    assert read_row(line, "", "") == parsed(line)


@given(
    st.lists(st.sampled_from(MARKS), min_size=4, max_size=4), st.sampled_from(["text", "metadata", "twin", "passage"])
)
def test_texts_that_look_like_marks_are_only_texts(texts: list[str], place: str) -> None:
    trace = make_line(texts, place)
    line = json.dumps(trace, separators=(",", ":")).encode()
    assert read_row(line, "", "") == parsed(line)


def make_line(texts: list[str], place: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(LINE)
    data["answer"], data["question"]["text"] = texts[0], texts[1]
    if place == "metadata":
        data["question"]["metadata"] = {
            "hops": 2,
            "steps": [{"a": 1}],
            "answer": texts[2],
            "passages": [{"b": texts[3]}],
        }
    elif place == "twin":
        data["question"]["metadata"] = {"hops": 2, "steps": [{"a": 1}], "answer": texts[2] + texts[3]}
    elif place == "passage":
        data["passages"][0]["text"], data["passages"][-1]["title"] = texts[2], texts[3]
    else:
        data["steps"][0]["generation"]["text"] = texts[2] + texts[3]
    return data


LINE = dump_trace(make_traces(QUESTIONS[1:2], clumsy)[0])


def test_what_our_writer_writes_is_skimmed() -> None:
    for trace in make_traces(script=clumsy):
        skimmed = rows._skim(dump_trace(trace).encode() + b"\n")
        assert skimmed is not None
        assert skimmed[1] == 1


@pytest.mark.parametrize("layout", [{"separators": (", ", ": ")}, {"sort_keys": True}, {"indent": None}])
def test_another_layout_gives_the_same_row(layout: dict[str, Any]) -> None:
    foreign = json.dumps(json.loads(LINE), **layout).encode()
    assert rows._skim(foreign) is None
    assert read_row(foreign, "", "") == read_row(LINE.encode(), "", "")


def test_what_follows_the_passages_is_not_lost() -> None:
    data: dict[str, Any] = json.loads(LINE)
    data["passages"] = data.pop("passages")
    data |= {"error": "late", "citations": [{"number": 1}]}
    line = json.dumps(data, separators=(",", ":")).encode()
    assert read_row(line, "", "").error == "late"


def test_a_question_without_steps_has_a_row() -> None:
    data = json.loads(dump_trace(make_traces([Question("q", "What?")])[0])) | {"steps": []}
    assert read_row(json.dumps(data, separators=(",", ":")).encode(), "", "").question == "What?"
