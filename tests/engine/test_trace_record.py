"""The trace on disk: what is written is read again, and what is damaged is named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_builders import ROOT_QUESTION, by_question, crew, plan, script
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_strategies import JSON, TRACES

from jade.engine.record import append_traces, dump_trace, read_traces, trace_from_json, trace_to_json
from jade.engine.solve import solve
from jade.errors import TraceUnreadable
from jade.types import TRACE_SCHEMA, Trace


@pytest.fixture
async def trace() -> Trace:
    voice = script(P=by_question({ROOT_QUESTION.text: plan("QDS")}, plan("R,DS,AG")))
    return await solve(ROOT_QUESTION, crew(voice))


@given(TRACES)
@settings(max_examples=150)
def test_a_trace_survives_its_json(trace: Trace) -> None:
    assert trace_from_json(json.loads(dump_trace(trace))) == trace


@given(st.lists(TRACES, max_size=3))
@settings(max_examples=30)
def test_traces_survive_their_file(tmp_path_factory: pytest.TempPathFactory, traces: list[Trace]) -> None:
    path = tmp_path_factory.mktemp("traces") / "deep" / "traces.jsonl"
    append_traces(path, traces[:1])
    append_traces(path, traces[1:])
    assert list(read_traces(path)) == traces


def test_several_may_add_to_a_file_at_once(tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "traces.jsonl"
    with ThreadPoolExecutor(8) as threads:
        for added in [threads.submit(append_traces, path, [trace]) for _ in range(400)]:
            added.result()
    assert list(read_traces(path)) == [trace] * 400


@given(st.dictionaries(st.sampled_from(["schema", "question", "nodes", "steps", "passages", "id", "usage", "x"]), JSON))
def test_an_object_that_is_no_trace_is_unreadable_and_nothing_worse(data: dict[str, Any]) -> None:
    with pytest.raises(TraceUnreadable):
        trace_from_json(data)


@given(st.data())
def test_a_trace_with_a_part_replaced_reads_or_is_unreadable_and_nothing_worse(data: st.DataObject) -> None:
    written = trace_to_json(data.draw(TRACES))
    written[data.draw(st.sampled_from(sorted(written)))] = data.draw(JSON)
    with contextlib.suppress(TraceUnreadable):
        assert isinstance(trace_from_json(written), Trace)


def test_a_passage_that_several_steps_saw_is_written_once(trace: Trace) -> None:
    written = trace_to_json(trace)
    assert len(written["passages"]) == 3
    assert dump_trace(trace).count("Emma is a novel") == 1


def test_a_trace_is_one_line_and_says_its_schema(trace: Trace) -> None:
    line = dump_trace(replace(trace, answer="two\nlines \u2028 and \ud800 half a character"))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["schema"] == TRACE_SCHEMA


@pytest.mark.parametrize("schema", [TRACE_SCHEMA + 1, None, "1", 1.5])
def test_a_newer_or_unknown_schema_is_named(trace: Trace, schema: object) -> None:
    with pytest.raises(TraceUnreadable, match=f"schema {schema!r}: this version reads up to {TRACE_SCHEMA}"):
        trace_from_json(trace_to_json(trace) | {"schema": schema})


def test_a_trace_from_before_a_field_was_added_reads_with_its_default(trace: Trace) -> None:
    written = trace_to_json(_with_cut_prompts(trace))
    for step in written["steps"]:
        step.get("generation", {}).pop("prompt_cut", None)
    assert trace_from_json(written) == trace


def test_fields_of_a_later_version_are_passed_over(trace: Trace) -> None:
    written = trace_to_json(trace) | {"mood": "fine"}
    parts = [written["question"], written["usage"], *written["nodes"], *written["passages"], *written["citations"]]
    steps = [part for step in written["steps"] for part in (step, step["observation"], step.get("generation", {}))]
    actions = [step["action"] for step in written["steps"] if "action" in step]
    for part in (*parts, *steps, *actions):
        part["mood"] = "fine"
    assert trace_from_json(written) == trace


def test_a_trace_says_which_prompts_were_cut(trace: Trace) -> None:
    cut = _with_cut_prompts(trace)
    again = trace_from_json(json.loads(dump_trace(cut)))
    assert [step.generation.prompt_cut for step in again.steps if step.generation] == [7] * 9
    assert "prompt_cut" not in dump_trace(trace)


def _with_cut_prompts(trace: Trace) -> Trace:
    steps = (replace(s, generation=s.generation and replace(s.generation, prompt_cut=7)) for s in trace.steps)
    return replace(trace, steps=tuple(steps))


def test_a_line_that_was_cut_off_is_passed_over_and_dropped_by_the_next_writer(tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "traces.jsonl"
    append_traces(path, [trace, trace])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 100])
    assert list(read_traces(path)) == [trace]
    append_traces(path, [trace])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("cut_off", [b"", b"{", b'{"schema":1,"id":"' + b"x" * 200_000])
def test_a_file_of_nothing_but_a_cut_off_line_starts_anew(tmp_path: Path, trace: Trace, cut_off: bytes) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(cut_off)
    append_traces(path, [trace])
    assert list(read_traces(path)) == [trace]


@pytest.mark.parametrize("held", [b"notes", b"notes\nmore notes", b'{"id": "1", "question": "Who?"}', b"\n"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, trace: Trace, held: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(held)
    with pytest.raises(TraceUnreadable, match="holds something else than traces"):
        append_traces(path, [trace])
    assert path.read_bytes() == held


def test_a_cut_off_line_longer_than_a_block_leaves_the_lines_before_it(tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "traces.jsonl"
    append_traces(path, [trace])
    whole = path.read_bytes()
    path.write_bytes(whole + b"{" * 200_000)
    append_traces(path, [])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("size", [65535, 65536, 65537])
def test_a_line_end_at_the_edge_of_a_block_is_found(tmp_path: Path, size: int) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b'{"schema"}\n' + b"{" * size)
    append_traces(path, [])
    assert path.read_bytes() == b'{"schema"}\n'


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda line: "junk\n", "line 2: not JSON"),
        (lambda line: "[" * 100_000 + "\n", "line 2: not JSON"),
        (lambda line: "9" * 5000 + "\n", "line 2: not JSON"),
        (lambda line: "[]\n", "line 2: not a trace"),
        (lambda line: line.replace('"schema":1', '"schema":99'), "line 2: trace of schema 99"),
        (lambda line: line.replace('"nodes"', '"knots"'), "line 2: not a trace: KeyError: 'nodes'"),
        (lambda line: line.replace('"passage":', '"passage":99'), "line 2: not a trace: IndexError"),
        (lambda line: line.replace('"kind":"Workflow"', '"kind":"Werk"'), "line 2: not a trace: KeyError: 'Werk'"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, trace: Trace, damage: Callable[[str], str], why: str) -> None:
    path = tmp_path / "traces.jsonl"
    line = dump_trace(trace) + "\n"
    path.write_text(line + damage(line) + line)
    with pytest.raises(TraceUnreadable, match=why):
        list(read_traces(path))


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match="absent"):
        list(read_traces(tmp_path / "absent.jsonl"))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(TraceUnreadable, match=r"binary\.jsonl"):
        list(read_traces(tmp_path / "binary.jsonl"))
