"""`--effort`: the same team, told what turns and searches cost, spends more or less."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from answering_server import ONE_HOP, SERIAL, Call, honest, serving
from cli_runs import jade

PRICES = re.compile(r"^Prices: turn (\S+), search (\S+)$", re.MULTILINE)


def thrifty(call: Call) -> str:
    """A planner that has learned what prices mean: at a high one it does not even search."""
    told = PRICES.search(call.user)
    if call.role != "P" or told is None or float(told[1]) < 0.05:
        return honest(call)
    return "<workflow>AG</workflow>" if float(told[1]) > 0.15 else "<workflow>R,AG</workflow>"


@pytest.mark.parametrize(
    ("effort", "told", "cost"),
    [
        (("--effort", "low"), ("0.20", "0.20"), (1, 0)),
        (("--effort", "medium"), ("0.10", "0.10"), (1, 1)),
        (("--effort", "0.75"), ("0.05", "0.05"), (1, 1)),
        (("--effort", "high"), ("0.00", "0.00"), (3, 2)),
        (("--set", "reward.dial=0.4"), ("0.20", "0.20"), (1, 0)),
        ((), None, (3, 2)),
    ],
)
def test_an_effort_moves_what_a_question_costs(
    index: Path, effort: tuple[str, ...], told: tuple[str, str] | None, cost: tuple[int, int]
) -> None:
    with serving(thrifty) as server:
        done = jade("ask", SERIAL, "--index", index, "--model", server.url, "--json", *effort)
    found = PRICES.search(next(call.user for call in server.calls if call.role == "P"))
    assert (found.groups() if found else None) == told
    answer = json.loads(done.out)
    assert (answer["usage"]["rounds"], answer["usage"]["retrievals"]) == cost
    prices = {"alpha": float(told[0]), "beta": float(told[1])} if told else None
    assert answer["trace"].get("effort") == prices


@pytest.mark.parametrize("verb", ["ask", "eval"])
def test_an_effort_that_is_none_is_one_line_before_any_work(index: Path, verb: str) -> None:
    asked = {"ask": [ONE_HOP, "--effort", "lots"], "eval": ["--benchmark", "x", "--out", "o", "--effort", "0,lots"]}
    done = jade(verb, *asked[verb], "--index", index)
    assert done.status == 2
    assert "reward.effort: choose low, medium, high, or a number from 0 (spare) to 1 (spend all)" in done.complaint
    assert list(Path.cwd().iterdir()) == []


def test_several_efforts_are_evaluated_side_by_side_each_in_a_run_of_its_own(index: Path) -> None:
    questions = [{"id": "1", "question": SERIAL, "golden_answers": ["Corby"]}]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    with serving(thrifty) as server:
        given = ("--benchmark", "mine.jsonl", "--index", index, "--model", server.url, "--out", "curve")
        done = jade("eval", *given, "--effort", "0,0.5,1")
        assert done.status == 0, done.err
        again = jade("eval", *given[:-1], "curve/effort-0", "--effort", "1")
    folders = [Path("curve") / f"effort-{level}" for level in ("0", "0.5", "1")]
    rows = [json.loads((folder / "mine" / "jade" / "records.jsonl").read_text()) for folder in folders]
    assert [(row["cost"]["rounds"], row["cost"]["retrievals"]) for row in rows] == [(1, 0), (1, 1), (3, 2)]
    assert [row["scores"]["f1"] for row in rows] == [0.0, 0.0, 1.0]
    assert "another prices.alpha (0.2, now 0.0)" in again.complaint
