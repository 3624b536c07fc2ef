"""What an answer is worth in training: F1, another measure by its name, or one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from learn_builders import make_step, make_trace
from learn_runs import make_config, make_run, small_world

from jade.engine.record import dump_trace, read_traces
from jade.errors import ConfigError
from jade.learn.measure import ask, find_measure, measured
from jade.learn.monitor.journal import read_journal
from jade.reward.outcome import outcome
from jade.types import Question, Trace

OWN = """
def by_length(traces):
    return [len(trace.answer) / 10 for trace in traces]

def asks(traces):
    assert all(trace.error is None for trace in traces)
    return [0.7 for trace in traces]

def drops_one(traces):
    return [1.0 for trace in traces[1:]]

def says_nan(traces):
    return [float("nan") for trace in traces]
"""


def answered(answer: str, *golds: str, error: str | None = None) -> Trace:
    return replace(make_trace([make_step(1)], question=Question("q7", "Who?", golds)), answer=answer, error=error)


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path}/own.py"


@pytest.mark.parametrize(("name", "worth"), [("f1", 0.5), ("exact_match", 0.0), ("accuracy", 1.0)])
async def test_a_measure_is_chosen_by_its_name(name: str, worth: float) -> None:
    assert await ask([answered("it was Ada", "Ada")], find_measure(name)) == [worth]


async def test_an_answer_is_worth_what_a_measure_of_ones_own_says(own: str) -> None:
    [trace] = await measured([answered("Ada", "Ada")], find_measure(f"{own}:by_length"))
    assert outcome(trace) == 0.3


async def test_nobody_is_asked_about_a_question_that_failed(own: str) -> None:
    traces = [answered("", "Ada", error="gone"), answered("Ada", "Ada")]
    assert await ask(traces, find_measure(f"{own}:asks")) == [0.0, 0.7]
    assert await ask(traces[:1], find_measure(f"{own}:drops_one")) == [0.0]


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("drops_one", "'drops_one' gave 1 numbers for 2 traces"),
        ("says_nan", r"'says_nan' gave nan for question q7 \('Who\?'\)"),
    ],
)
async def test_numbers_that_fit_no_trace_are_refused(own: str, function: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"reward\.outcome: {complaint}"):
        await ask([answered("Ada", "Ada")] * 2, find_measure(f"{own}:{function}"))


def test_a_name_that_is_no_measure_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"reward\.outcome: 'em' is none of f1, exact_match, accuracy and not"):
        find_measure("em")


async def test_a_run_learns_from_what_its_own_measure_says_and_keeps_it_with_the_traces(
    tiny_model: Path, tmp_path: Path, own: str
) -> None:
    settings = {"reward": {"outcome": f"{own}:asks"}, "learn": {"iterations": 1, "traces_every": 1}}
    await make_run(make_config(tiny_model, settings), tmp_path / "run", dev=small_world().splits["dev"][:2]).train()
    assert [row["outcome"] for row in read_journal(tmp_path / "run") if "outcome" in row] == [0.7, 0.7]
    [file] = (tmp_path / "run" / "traces").iterdir()
    assert [outcome(trace) for trace in read_traces(file)] == [0.7, 0.7]


def test_traces_without_a_measure_are_written_as_before() -> None:
    assert "outcome" not in dump_trace(answered("Ada", "Ada"))
