"""What is printed of a finished question: the passages that support it, and how many others were read."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from answering_server import ONE_HOP, Server
from cli_runs import jade

from jade.screen.answer import print_answer
from jade.types import Citation, Node, Observation, Passage, Question, Step, Trace


def wide_trace(holding: dict[str, list[bool]]) -> Trace:
    """A split into nodes that each read some passages, of which some hold the answer."""
    numbers = count(1)
    citations = [
        Citation(number, node, Passage(f"p{number}", f"Page {number}", f"Text {number}", f"a.md:{number}"), holds)
        for node, marks in holding.items()
        for holds in marks
        for number in [next(numbers)]
    ]
    nodes = [Node("0", None, "All?", "All?", "yes", tuple(holding)), *(Node(n, "0", n, n, "x") for n in holding)]
    return Trace("t", Question("q", "All?"), tuple(nodes), (), "yes", tuple(citations), supported=True)


def printed(trace: Trace, capsys: pytest.CaptureFixture[str], *, everything: bool = False) -> list[str]:
    print_answer(trace, Path("t.jsonl"), everything=everything)
    lines = capsys.readouterr().out.splitlines()
    return lines[lines.index("Answer: yes") + 1 : -1]


def test_passages_that_support_are_shown_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    marks = {"0.1": [False, True, False, True, False], "0.2": [True]}
    assert printed(wide_trace(marks), capsys) == [
        "[2] ✓ 0.1: Page 2 (a.md:2)", "      Text 2",
        "[4] ✓ 0.1: Page 4 (a.md:4)", "      Text 4",
        "      0.1: 3 more read",
        "[6] ✓ 0.2: Page 6 (a.md:6)", "      Text 6",
    ]  # fmt: skip


def test_where_none_holds_the_answer_the_best_one_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(wide_trace({"0.1": [False] * 5}), capsys) == [
        "[1]   0.1: Page 1 (a.md:1)", "      Text 1", "      0.1: 4 more read",
    ]  # fmt: skip


@pytest.mark.parametrize(("source", "where"), [("rows.jsonl:line 1", "rows.jsonl:line 1"), ("", "p1")])
def test_a_passage_without_a_title_goes_by_its_place(
    capsys: pytest.CaptureFixture[str], source: str, where: str
) -> None:
    trace = wide_trace({"0.1": [True]})
    untitled = replace(trace.citations[0], passage=Passage("p1", "", "Text 1", source))
    assert printed(replace(trace, citations=(untitled,)), capsys)[0] == f"[1] ✓ 0.1: {where}"


def test_every_passage_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(wide_trace({"0.1": [False] * 5, "0.2": [True] * 2}), capsys, everything=True)
    assert [line[:3] for line in lines[::2]] == [f"[{number}]" for number in range(1, 8)]
    assert not [line for line in lines if "more read" in line]


def test_a_search_that_failed_is_told_from_one_that_found_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    trace = wide_trace({"0.1": [True]})
    steps = [
        Step(f"0:{number}", "0", 1, "R", Observation("All?"), error=error)
        for number, error in enumerate(["RetrievalFailed: no server", "the retrieval budget is spent", None])
    ]
    assert printed(replace(trace, steps=tuple(steps)), capsys)[0] == (
        "1 of 3 steps failed; the first: RetrievalFailed: no server"
    )
    assert "failed" not in printed(replace(trace, steps=tuple(steps[1:])), capsys)[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_an_answer_that_cannot_be_kept_is_still_printed(index: Path, server: Server) -> None:
    done = jade("ask", ONE_HOP, "--index", index, "--model", server.url, "--trace", "/dev/full")
    assert done.status == 2
    assert "Answer: Ada Lenn" in done.out
    assert done.err.splitlines()[-1] == (
        "jade: not everything could be written (No space left on device); make room and run it again"
    )
