"""Rewards: the outcome and cost are shared, the format penalty is not."""

from __future__ import annotations

import pytest

from jade.config import RewardConfig
from jade.reward.outcome import assign_rewards, ramped
from jade.types import (
    Action,
    Answer,
    Effort,
    Generation,
    Malformed,
    Node,
    Observation,
    Query,
    Question,
    Step,
    Trace,
    Usage,
    Workflow,
)


def step(number: int, role: str, action: Action | Malformed | None, trained: bool = True) -> Step:
    generation = Generation("text") if trained else None
    return Step(f"s{number}", "0", 1, role, Observation("Who?"), generation=generation, action=action)


def trace(
    answer: str,
    golds: tuple[str, ...] = ("Ada Lovelace",),
    rounds: int = 1,
    retrievals: int = 1,
    error: str | None = None,
    effort: Effort | None = None,
    malformed: bool = False,
) -> Trace:
    steps = (
        step(1, "P", Workflow(("QR", "R", "AG"))),
        step(2, "QR", Malformed("no <query>") if malformed else Query("who")),
        step(3, "R", None, trained=False),
        step(4, "AG", Answer(answer)),
    )
    usage = Usage(rounds=rounds, retrievals=retrievals)
    node = Node("0", None, "Who?", "Who?", answer)
    return Trace("t", Question("q", "Who?", golds), (node,), steps, answer, usage=usage, error=error, effort=effort)


def test_every_trainable_step_is_rewarded_and_no_tool_is() -> None:
    assert list(assign_rewards(trace("Ada Lovelace"), RewardConfig())) == ["s1", "s2", "s4"]


def test_the_outcome_is_the_f1_of_the_answer_shared_by_all_steps() -> None:
    rewards = assign_rewards(trace("Ada"), RewardConfig())
    assert [reward.outcome for reward in rewards.values()] == pytest.approx([2 / 3] * 3)
    assert [reward.total for reward in rewards.values()] == pytest.approx([2 / 3] * 3)


@pytest.mark.parametrize(("said", "expected"), [("Yes", 1.0), ("yes, it is", 0.0), ("no", 0.0)])
def test_yes_no_questions_are_scored_by_exact_match(said: str, expected: float) -> None:
    rewards = assign_rewards(trace(said, golds=("yes",)), RewardConfig())
    assert rewards["s1"].outcome == expected


@pytest.mark.parametrize(
    ("rounds", "retrievals", "expected"), [(0, 0, 0.0), (1, 2, 0.1 + 0.4), (3, 3, 0.9), (9, 7, 0.9)]
)
def test_turns_and_retrievals_are_priced_up_to_three(rounds: int, retrievals: int, expected: float) -> None:
    rewards = assign_rewards(trace("Ada", rounds=rounds, retrievals=retrievals), RewardConfig(alpha=0.3, beta=0.6))
    assert rewards["s4"].cost == pytest.approx(expected)
    assert rewards["s4"].total == pytest.approx(2 / 3 - expected)


def test_the_prices_of_the_question_itself_win() -> None:
    priced = trace("Ada", rounds=3, retrievals=3, effort=Effort(alpha=0.0, beta=0.1))
    assert assign_rewards(priced, RewardConfig(alpha=0.5, beta=0.5))["s1"].cost == pytest.approx(0.1)


def test_the_format_penalty_falls_on_the_malformed_step_alone() -> None:
    rewards = assign_rewards(trace("Ada Lovelace", malformed=True), RewardConfig(format_penalty=-2.0))
    assert {name: reward.format for name, reward in rewards.items()} == {"s1": 0.0, "s2": -2.0, "s4": 0.0}
    assert rewards["s2"].total == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("ramp", "iteration", "share"), [(0, 0, 1.0), (4, 0, 0.0), (4, 1, 0.25), (4, 4, 1.0), (4, 9, 1.0)]
)
def test_prices_rise_from_nothing_over_the_ramp(ramp: int, iteration: int, share: float) -> None:
    cfg = ramped(RewardConfig(alpha=0.4, beta=0.8, ramp=ramp, format_penalty=-2.0), iteration)
    assert cfg.alpha == pytest.approx(0.4 * share)
    assert cfg.beta == pytest.approx(0.8 * share)
    assert cfg.format_penalty == -2.0


def test_a_question_that_failed_has_an_outcome_of_zero_and_still_pays_its_cost() -> None:
    rewards = assign_rewards(trace("Ada Lovelace", error="backbone is gone"), RewardConfig(alpha=0.3))
    assert rewards["s1"].outcome == 0.0
    assert rewards["s1"].cost == pytest.approx(0.1)
