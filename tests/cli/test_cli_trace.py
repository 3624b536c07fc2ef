"""`jade trace show`: the trace of a question, as it was worked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from answering_server import ONE_HOP, SERIAL, Server
from cli_runs import jade, jade_process

from jade.engine.record import read_traces


@pytest.fixture
def traces(index: Path, server: Server) -> Path:
    """A file with a trace of three nodes and one of a single node."""
    for question in (SERIAL, ONE_HOP):
        assert jade("ask", question, "--index", index, "--model", server.url).status == 0
    return Path("traces.jsonl")


def test_every_trace_is_shown_with_roles_outputs_tokens_and_time(traces: Path) -> None:
    done = jade("trace", "show", traces)
    assert done.status == 0
    assert done.err == ""
    lines = done.out.splitlines()
    steps = [line.replace("│", " ").strip("├─└ ").split()[0] for line in lines if line.endswith(" s)")]
    solving = ["P", "QR", "R", "DS", "AG"]
    assert steps == ["P", "QDS", *solving, *solving, "AS", *solving]
    assert [line for line in lines if "tokens, 0." in line and "AS  Corby" in line]
    assert done.out.count("Answer: ") == 2
    assert "─" * 80 in lines


def test_outputs_are_added_on_request(traces: Path) -> None:
    raw = "<q1>Who founded Ashford Mill?</q1><q2>Where was #1 born?</q2>"
    assert raw not in jade("trace", "show", traces).out
    assert raw in jade("trace", "show", traces, "--outputs").out


def test_one_trace_is_picked_by_its_id(traces: Path) -> None:
    wanted = list(read_traces(traces))[1].id
    done = jade("trace", "show", traces, "--id", wanted)
    assert "Answer: Ada Lenn" in done.out
    assert "Corby" not in done.out


def test_an_unknown_id_is_one_line(traces: Path) -> None:
    done = jade("trace", "show", traces, "--id", "nobody")
    assert (done.status, done.complaint) == (2, "jade: traces.jsonl: no trace with id 'nobody'")


def test_a_file_that_is_not_there_or_empty_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in jade("trace", "show", "nothing.jsonl").complaint
    assert "Is a directory" in jade("trace", "show", tmp_path).complaint
    Path("empty.jsonl").touch()
    assert jade("trace", "show", "empty.jsonl").complaint == "jade: empty.jsonl: no trace in it"


@pytest.mark.parametrize(
    "line", ["{", "[]", '"trace"', "{}", '{"schema": 1}', '{"schema": 99}', '{"schema": 1, "passages": 3}', "\xff" * 9]
)
def test_a_damaged_file_is_one_line(line: str) -> None:
    Path("bad.jsonl").write_bytes(line.encode("latin-1") + b"\n")
    done = jade("trace", "show", "bad.jsonl")
    assert done.status == 2
    assert done.complaint.startswith("jade: bad.jsonl")


def test_a_trace_of_a_newer_version_says_to_update(traces: Path) -> None:
    data = json.loads(traces.read_text().splitlines()[0])
    traces.write_text(json.dumps(data | {"schema": 2}) + "\n")
    assert "this version reads up to 1; update jade" in jade("trace", "show", traces).complaint


@pytest.mark.parametrize(
    ("place", "junk"),
    [
        (["answer"], 5),
        (["nodes", 0, "question"], 7),
        (["nodes", 1, "parent"], "0.1"),
        (["steps", 0, "action"], {"kind": "Workflow", "modules": 3}),
        (["steps", 0, "seconds"], "long"),
        (["steps", 2, "found"], [99]),
        (["citations", 0, "passage"], "x"),
        (["usage"], {"calls": 1, "teas": 2}),
    ],
)
def test_a_trace_with_junk_in_it_never_ends_in_a_traceback(traces: Path, place: list[Any], junk: object) -> None:
    data = json.loads(traces.read_text().splitlines()[0])
    target = data
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = junk
    traces.write_text(json.dumps(data) + "\n")
    done = jade("trace", "show", traces)
    assert done.status in (0, 2)
    if done.status:
        (line,) = done.err.splitlines()
        assert line.startswith("jade: traces.jsonl")


def test_what_stands_before_the_damage_is_shown_and_a_cut_last_line_is_passed_over(traces: Path) -> None:
    whole = traces.read_text()
    traces.write_text(whole + '{"schema":1,"id":"cut')
    assert jade("trace", "show", traces).out.count("Answer: ") == 2
    traces.write_text(whole + "junk\n")
    done = jade("trace", "show", traces)
    assert (done.status, done.out.count("Answer: ")) == (2, 2)
    assert done.err.startswith("jade: traces.jsonl, line 3: not JSON")


def test_a_reader_that_leaves_early_is_no_error(traces: Path) -> None:
    import subprocess
    import sys

    text = traces.read_text()
    traces.write_text(text * 200)
    command = f"{sys.executable} -m jade trace show traces.jsonl | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("0 Where was the founder")
    assert done.stderr == ""


def test_a_stdout_that_cannot_write_every_character_gets_a_mark_instead(traces: Path) -> None:
    done = jade_process("trace", "show", traces, cwd=Path.cwd(), PYTHONIOENCODING="ascii")
    assert done.status == 0
    assert "Who founded Ashford Mill?  ? Ada Lenn" in done.out
