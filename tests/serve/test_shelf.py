"""Traces are found by offset, as files grow, shrink and break."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from serve_builders import SIMPLE
from trace_builders import QUESTIONS, clumsy, make_traces

from jade.engine.record import append_traces, dump_trace
from jade.errors import TraceUnreadable
from jade.serve.query import Filter, facets, pair_up, select, summary
from jade.serve.shelf import Files, Line, Recent, Shelf, TraceFile
from jade.types import Question, Trace


def shelf_of(path: Path) -> Shelf:
    return Shelf(Files(lambda: [TraceFile(path)]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    append_traces(tmp_path / "traces.jsonl", make_traces())
    return tmp_path / "traces.jsonl"


def test_rows_say_what_a_trace_is_about(path: Path) -> None:
    rows = shelf_of(path).look()
    assert [row.question for row in rows] == [question.text for question in QUESTIONS]
    assert [row.workflow for row in rows] == ["QR,R,DS,AG", "QDS", "QDP", "QR,R,DS,AG"]
    assert [row.score for row in rows] == [1.0, 1.0, 1.0, 0.0]
    assert [row.verdict for row in rows] == ["right", "right", "right", "wrong"]
    assert (rows[1].rounds, rows[1].retrievals, rows[1].dataset) == (3, 2, "multi")


def test_a_trace_is_read_back_whole(path: Path) -> None:
    traces = make_traces()
    shelf = shelf_of(path)
    for trace in traces:
        assert [step.action for step in shelf.trace(trace.id).steps] == [step.action for step in trace.steps]
    with pytest.raises(KeyError):
        shelf.trace("nobody@0")


def test_what_is_added_appears_and_what_is_half_written_does_not(path: Path) -> None:
    shelf = shelf_of(path)
    assert len(shelf.look()) == 4
    line = dump_trace(make_traces([Question("q9", SIMPLE)])[0]) + "\n"
    with path.open("a") as file:
        file.write(line[:100])
    assert len(shelf.look(at_once=True)) == 4
    with path.open("a") as file:
        file.write(line[100:])
    assert [row.question_id for row in shelf.look(at_once=True)] == ["q1", "q2", "q3", "q4", "q9"]
    assert shelf.trace("q9@0").answer == "Fernhill"


def test_a_file_that_was_cut_back_is_read_anew(path: Path) -> None:
    shelf = shelf_of(path)
    shelf.look()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[2:3]))
    assert [row.question_id for row in shelf.look(at_once=True)] == ["q3"]
    assert shelf.trace("q3@0").question.id == "q3"


def test_the_same_trace_twice_has_two_keys(path: Path) -> None:
    append_traces(path, make_traces(QUESTIONS[:1]))
    shelf = shelf_of(path)
    assert [row.key for row in shelf.look()] == ["q1@0", "q2@0", "q3@0", "q4@0", "q1@0~2"]
    assert shelf.trace("q1@0~2").id == "q1@0"


def test_a_broken_line_is_a_row_that_says_so(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"id": 7}\nnot json\n')
    shelf = shelf_of(path)
    *_, first, second = shelf.look()
    assert first.error is not None
    assert first.error.startswith("not a trace")
    assert list(second.flags) == ["error", "unsupported"]
    with pytest.raises(TraceUnreadable):
        shelf.trace(second.key)


def test_a_broken_or_bottomless_line_harms_neither_search_nor_reading(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"id": 1791, \nrubbish 1791\n' + '{"id":' + "[" * 100_000 + "1791\n")
    shelf = shelf_of(path)
    assert len(shelf.look()) == 7
    assert [shelf.rows[place].question_id for place in sorted(shelf.find("1791"))] == ["q1", "q2", "q3", "q4"]
    for row in shelf.rows[4:]:
        with pytest.raises(TraceUnreadable):
            shelf.trace(row.key)


def test_an_absent_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match=r"gone\.jsonl"):
        shelf_of(tmp_path / "gone.jsonl").look()


def test_a_file_that_is_gone_since_it_was_listed_is_told(path: Path) -> None:
    shelf = shelf_of(path)
    key = shelf.look()[0].key
    path.unlink()
    with pytest.raises(TraceUnreadable, match="No such file"):
        shelf.trace(key)
    with pytest.raises(TraceUnreadable, match="No such file"):
        shelf.find("Fernhill")


@pytest.mark.parametrize(
    "query", ["botanist", "ADA born", "older", "founded otto", "document0", "1791", "q3", "text", "role", "Lune", "id"]
)
def test_search_agrees_with_reading_every_text(path: Path, query: str) -> None:
    shelf = shelf_of(path)
    found = [shelf.rows[place].question_id for place in sorted(shelf.find(query))]
    assert found == [row.question_id for row in shelf.rows if _holds(shelf, row.key, query)]


@pytest.mark.parametrize(
    "query", ["nothing-like-this", "logprobs", "malformed", "workflow null", '"', "completion_tokens"]
)
def test_search_does_not_take_field_names_for_text(path: Path, query: str) -> None:
    assert not shelf_of(path).find(query)


def test_search_finds_all_words_or_nothing(path: Path) -> None:
    shelf = shelf_of(path)
    assert [shelf.rows[place].question_id for place in sorted(shelf.find("founded otto"))] == ["q4"]
    assert not shelf.find("founded botany-bay")


def _holds(shelf: Shelf, key: str, query: str) -> bool:
    """The slow way: every string of the trace that is not a code."""
    trace = shelf.trace(key)
    texts = [trace.question.text, *trace.question.answers, trace.question.dataset, trace.question.id, trace.id]
    texts += [trace.answer, *(text for node in trace.nodes for text in (node.question, node.answer or "", node.id))]
    for step in trace.steps:
        texts += [step.id, step.generation.text if step.generation else "", step.observation.question]
        for passage in (*step.found, *step.observation.passages):
            texts += [passage.id, passage.title, passage.text, passage.source]
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in query.casefold().split())


def test_search_knows_letters_beyond_ascii(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    append_traces(path, make_traces([Question("q1", "Wo liegt Örebro?"), Question("q2", SIMPLE)]))
    with path.open("a", encoding="utf-8") as file:
        line = json.loads(dump_trace(make_traces([Question("q3", "Où est l'École ?")])[0]))
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    shelf = shelf_of(path)
    assert [shelf.rows[place].question_id for place in shelf.find("örebro")] == ["q1"]
    assert [shelf.rows[place].question_id for place in shelf.find("école")] == ["q3"]


def test_filters_keep_what_they_name(tmp_path: Path) -> None:
    append_traces(tmp_path / "t", make_traces(script=clumsy))
    shelf = shelf_of(tmp_path / "t")

    def ids(**wanted: object) -> list[str]:
        return [row.question_id for row in select(shelf, Filter(**wanted))]  # type: ignore[arg-type]

    assert ids() == ["q1", "q2", "q3", "q4"]
    assert ids(dataset="multi") == ["q2", "q3"]
    assert ids(verdict="wrong") == [row.question_id for row in shelf.rows if row.score == 0]
    assert ids(flag="malformed") == ["q1", "q2", "q3", "q4"]
    assert ids(flag="error") == []
    assert ids(workflow="R,DS,AG", text="older") == ["q3"]
    assert ids(min_rounds=2) == []


def test_sorting_puts_what_has_no_score_last(path: Path) -> None:
    append_traces(path, make_traces([Question("q9", SIMPLE)]))
    shelf = shelf_of(path)
    assert [row.question_id for row in select(shelf, Filter(), "score")][:1] == ["q4"]
    assert [row.question_id for row in select(shelf, Filter(), "score")][-1] == "q9"
    assert [row.question_id for row in select(shelf, Filter(), "score", descending=True)][-1] == "q9"
    assert [row.rounds for row in select(shelf, Filter(), "rounds", descending=True)] == [3, 3, 1, 1, 1]


def test_facets_count_and_summaries_average(path: Path) -> None:
    rows = shelf_of(path).look()
    assert facets(rows)["dataset"] == [["single", 2], ["multi", 2]]
    assert facets(rows)["verdict"] == [["right", 3], ["wrong", 1]]
    assert summary(rows)["score"] == 0.75
    assert summary([])["score"] is None


def test_recent_traces_are_kept_up_to_their_number() -> None:
    recent = Recent(keep=2)
    shelf = Shelf(recent)
    for question in QUESTIONS[:3]:
        recent.add(make_traces([question])[0])
        shelf.look(at_once=True)
    assert [row.question_id for row in shelf.look(at_once=True)] == ["q2", "q3"]
    assert shelf.trace("q3@0").answer == "Brackwater"


class Busy(Recent):
    """Another question is answered while somebody begins to look, the first times that somebody does."""

    def __init__(self, keep: int, traces: list[Trace]) -> None:
        super().__init__(keep)
        self.traces = traces

    def look(self) -> Iterator[Line]:
        if self.traces:
            self.add(self.traces.pop())
        return super().look()


def test_questions_that_are_answered_while_somebody_looks_are_no_crash() -> None:
    recent = Busy(1, make_traces(QUESTIONS[:3]))
    recent.add(make_traces(QUESTIONS[3:])[0])
    assert [row.question_id for row in Shelf(recent).look()] == ["q1"]


def test_pairs_are_the_questions_that_both_runs_have(tmp_path: Path) -> None:
    append_traces(tmp_path / "a", make_traces(QUESTIONS[:3], clumsy))
    append_traces(tmp_path / "b", make_traces(QUESTIONS[1:]))
    pairs = pair_up(shelf_of(tmp_path / "a").look(), shelf_of(tmp_path / "b").look())
    assert [(pair.before.question_id, pair.after.workflow, pair.change) for pair in pairs] == [
        ("q2", "QDS", "same"),
        ("q3", "QDP", "same"),
    ]
