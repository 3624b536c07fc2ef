"""`jade index`, then `jade ask`: answers, citations, usage, budgets and doubts, over a real server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from answering_server import ONE_HOP, PARALLEL, SERIAL, UNSUPPORTED, Call, Failure, Server, honest, serving
from cli_runs import Result, jade, jade_process

from jade.engine.record import read_traces, trace_from_json
from jade.types import Trace


def ask(question: str, index: Path | str, server: Server, *more: str | Path) -> Result:
    return jade("ask", question, "--index", index, "--model", server.url, *more)


def ask_json(question: str, index: Path | str, server: Server, *more: str | Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(ask(question, index, server, "--json", *more).out)
    return answer


def saved(file: str = "traces.jsonl") -> list[Trace]:
    return list(read_traces(Path(file)))


def test_a_question_of_one_hop_is_answered_with_its_source(index: Path, server: Server) -> None:
    done = ask(ONE_HOP, index, server)
    assert done.status == 0
    lines = done.out.splitlines()
    assert "0 Who founded Ashford Mill?  → Ada Lenn" in lines[0]
    assert "Answer: Ada Lenn" in lines
    assert "[1] ✓ 0: mill (mill.txt:chars 0-69)" in lines
    assert lines[lines.index("[1] ✓ 0: mill (mill.txt:chars 0-69)") + 1].strip().startswith("Ashford Mill was founded")
    assert lines[-1].startswith("4 calls, 1 rounds, 1 retrievals, ")
    assert lines[-1].endswith("trace in traces.jsonl")
    assert server.roles == ["P", "QR", "DS", "AG"]


def test_serial_hops_are_cited_for_each_node(index: Path, server: Server) -> None:
    done = ask(SERIAL, index, server)
    assert "Answer: Corby" in done.out.splitlines()
    assert "0.2 Where was Ada Lenn born?  → Corby" in done.out
    assert "✓ 0.1: mill (mill.txt:chars 0-69)" in done.out
    assert "✓ 0.2: Ada Lenn (ada.md:chars 12-69)" in done.out
    assert "11 calls, 3 rounds, 2 retrievals" in done.out


def test_parallel_parts_come_from_html_and_jsonl(index: Path, server: Server) -> None:
    done = ask(PARALLEL, index, server)
    assert "Answer: River Len" in done.out.splitlines()
    assert "✓ 0.1: River Len (len.html:chars 0-30)" in done.out
    assert "✓ 0.2: River Brede (rows.jsonl:line 1)" in done.out


def test_json_is_one_object_with_the_promised_keys(index: Path, server: Server) -> None:
    done = ask(SERIAL, index, server, "--json", "--trace", "deep/down/t.jsonl")
    answer = json.loads(done.out)
    assert sorted(answer) == ["answer", "citations", "nodes", "trace", "usage"]
    assert answer["answer"] == "Corby"
    assert [(one["number"], one["node"]) for one in answer["citations"]] == [(1, "0.1"), (2, "0.2"), (3, "0.2")]
    assert answer["citations"][1]["passage"]["title"] == "Ada Lenn"
    assert [(node["id"], node["answer"]) for node in answer["nodes"]] == [
        ("0", "Corby"), ("0.1", "Ada Lenn"), ("0.2", "Corby"),
    ]  # fmt: skip
    assert sorted(answer["usage"]) == ["calls", "completion_tokens", "prompt_tokens", "retrievals", "rounds", "seconds"]
    assert (answer["usage"]["calls"], answer["usage"]["rounds"], answer["usage"]["retrievals"]) == (11, 3, 2)


def test_the_trace_of_the_json_is_the_trace_on_disk(index: Path, server: Server) -> None:
    trace = ask_json(SERIAL, index, server, "--trace", "t.jsonl")["trace"]
    assert trace.pop("file") == "t.jsonl"
    assert (trace["schema"], trace["supported"], trace["stopped"], trace["error"]) == (1, True, "", None)
    assert [trace_from_json(trace)] == saved("t.jsonl")


def test_traces_are_added_to_the_file_and_named_after_question_and_seed(index: Path, server: Server) -> None:
    for seed in ("0", "7"):
        ask(ONE_HOP, index, server, "--seed", seed)
    ask(ONE_HOP, index, server, "--set", "seed=9")
    ids = [trace.id for trace in saved()]
    assert [id_.partition("@")[2] for id_ in ids] == ["0", "7", "9"]
    assert len({id_.partition("@")[0] for id_ in ids}) == 1


def test_a_file_of_something_else_is_refused_before_the_work(index: Path, server: Server) -> None:
    Path("notes.txt").write_text("notes of mine")
    done = ask(ONE_HOP, index, server, "--trace", "notes.txt")
    assert (done.status, done.out) == (2, "")
    assert "notes.txt holds something else than traces" in done.err
    assert Path("notes.txt").read_text() == "notes of mine"


def test_a_trace_that_nobody_wants_goes_nowhere(index: Path, server: Server) -> None:
    done = ask(ONE_HOP, index, server, "--trace", "/dev/null")
    assert (done.status, "Answer: Ada Lenn" in done.out) == (0, True)
    assert list(Path.cwd().iterdir()) == []


def test_progress_goes_to_stderr_as_plain_lines_and_json_alone_to_stdout(index: Path, server: Server) -> None:
    done = jade_process("ask", SERIAL, "--index", index, "--model", server.url, "--json", cwd=Path.cwd())
    assert json.loads(done.out)["answer"] == "Corby"
    assert done.err.splitlines()[:4] == [
        "0 P QDS",
        "0 QDS Who founded Ashford Mill? | Where was #1 born?",
        "0.1 P QR,R,DS,AG",
        "0.1 QR Who founded Ashford Mill?",
    ]
    assert "\x1b" not in done.err + done.out


def test_a_question_that_nothing_supports_says_so(index: Path, server: Server) -> None:
    done = ask(UNSUPPORTED, index, server)
    assert done.status == 0
    assert "Answer: Yuri Gagarin" in done.out
    assert "No document that was found supports this answer." in done.out
    assert ask_json(UNSUPPORTED, index, server)["trace"]["supported"] is False


def test_a_question_for_which_nothing_is_found_says_so(index: Path) -> None:
    def mute(call: Call) -> str:
        return "<workflow>R,AG</workflow>" if call.role == "P" else ""

    with serving(mute) as server:
        done = ask("Xyzzy?", index, server)
    assert done.status == 0
    assert "0 passages" in done.out
    assert "Answer: none" in done.out
    assert "Nothing that was found answers this question." in done.out


@pytest.mark.parametrize("budget", ["rounds=1", "calls=2", "retrievals=1", "tokens=100", "children=1"])
def test_a_spent_budget_is_named_and_the_team_answers_from_what_it_has(
    budget: str, index: Path, server: Server
) -> None:
    done = ask(SERIAL, index, server, "--set", f"budget.{budget}")
    assert done.status == 0
    assert f"Stopped early: the budget of {budget.partition('=')[0]} was spent." in done.out
    assert "Answer: Corby" in done.out
    assert server.roles[-1] == "AS"
    assert saved()[0].stopped == budget.partition("=")[0]


def test_a_spent_time_budget_ends_the_work(index: Path) -> None:
    over = threading.Event()

    def answer_when_all_is_over(call: Call) -> str:
        over.wait()
        return honest(call)

    with serving(answer_when_all_is_over) as server:
        answer = ask_json(SERIAL, index, server, "--set", "budget.seconds=0.2")
        over.set()
    assert answer["trace"]["stopped"] == "seconds"


def test_a_failing_server_is_one_clear_line_and_a_status(index: Path) -> None:
    with serving(lambda call: Failure(500, "out of memory")) as server:
        done = ask(ONE_HOP, index, server, "--set", "backbone.retries=0")
        url = server.url
    assert (done.status, done.out) == (1, "")
    *progress, complaint = done.err.splitlines()
    assert complaint == (
        f"jade: no answer: BackboneFailed: {url}: HTTP 500 (out of memory) (1 try) "
        "(what was tried: jade trace show traces.jsonl)"
    )
    assert all(line.startswith("0 ") for line in progress)
    assert "The team failed: BackboneFailed" in jade("trace", "show", "traces.jsonl").out


def test_a_failing_server_still_gives_a_json_object(index: Path) -> None:
    with serving(lambda call: Failure(401, "who are you?")) as server:
        done = ask(ONE_HOP, index, server, "--json")
    answer = json.loads(done.out)
    assert (done.status, answer["answer"]) == (1, "")
    assert "HTTP 401 (who are you?); check the key" in answer["trace"]["error"]
    assert "check the key" in done.err.splitlines()[-1]


def test_a_server_that_is_not_there_is_named(index: Path) -> None:
    with serving() as server:
        url = server.url
    done = jade("ask", ONE_HOP, "--index", index, "--model", url, "--set", "backbone.retries=0")
    assert done.status == 1
    assert f"{url}: ConnectError" in done.err.splitlines()[-1]


def test_a_planner_that_fails_does_not_stop_the_question(index: Path) -> None:
    with serving(lambda call: Failure() if call.role == "P" else honest(call)) as server:
        done = ask(ONE_HOP, index, server, "--set", "backbone.retries=0")
    assert done.status == 0
    assert "Answer: Ada Lenn" in done.out
    assert "P   failed: BackboneFailed" in done.out


def test_malformed_output_is_shown_with_what_ran_instead(index: Path) -> None:
    def sloppy(call: Call) -> str:
        return {"P": "I think QDS!", "AG": "Ada Lenn"}.get(call.role) or honest(call)

    with serving(sloppy) as server:
        done = ask(ONE_HOP, index, server)
    assert "P   malformed (not of the form <workflow>…</workflow>), ran R,AG" in done.out
    assert "AG  malformed (not of the form <answer>…</answer>), ran Ada Lenn" in done.out


def test_a_very_long_question_is_worked_and_shown_short(index: Path) -> None:
    question = "Who founded the mill " + "that stands beside the old river " * 4000 + "?"
    with serving(
        lambda call: "<workflow>R,AG</workflow>" if call.role == "P" else "<answer>Ada Lenn</answer>"
    ) as server:
        done = ask(question, index, server)
    assert done.status == 0
    assert "Answer: Ada Lenn" in done.out
    assert max(map(len, done.out.splitlines())) < 400
    assert saved()[0].question.text == question
    assert server.calls[0].question == question


def test_the_same_question_asked_twice_gives_the_same_answer_file_line(index: Path, server: Server) -> None:
    first, second = (ask_json(PARALLEL, index, server) for _ in range(2))
    for answer in (first, second):
        del answer["usage"]["seconds"]
    assert (first["answer"], first["citations"], first["nodes"], first["usage"]) == (
        second["answer"], second["citations"], second["nodes"], second["usage"],
    )  # fmt: skip


def test_settings_come_from_a_file_then_options_then_overrides(index: Path, server: Server) -> None:
    Path("jade.toml").write_text(
        f'[retrieval]\nindex = "nowhere"\nk = 1\n[backbone]\nmodel = "{server.url}"\n[team]\nworkflows = ["R,AG"]\n'
    )
    done = jade("ask", "Where was Ada Lenn born?", "--config", "jade.toml", "--index", index)
    assert "R   Where was Ada Lenn born? → 1 passages: Ada Lenn" in done.out
    assert server.roles == ["AG"]
    wider = jade("ask", "Where was Ada Lenn born?", "--config", "jade.toml", "--index", index, "--set", "retrieval.k=2")
    assert "→ 2 passages" in wider.out
