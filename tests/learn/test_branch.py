"""Credit among rollouts that came to the same point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_experience, make_step, make_trace

from jade.config import CreditConfig
from jade.learn.credit.branch import branch
from jade.learn.credit.rules import assign_credit
from jade.learn.transitions import Experience, of_roles
from jade.types import Reward, Step, Trace, Transition

CFG = CreditConfig(rule="branch", normalise="none")
Call = tuple[str, int, int]
"""Role, prompt, action."""
SPLIT, WHOLE = 70, 71


def a_step(number: int, call: Call) -> Step:
    step = make_step(number, call[0], ids=[call[2]])
    assert step.generation is not None
    return replace(step, generation=replace(step.generation, prompt_ids=(call[1],)))


def rollouts(*told: tuple[float, list[Call]], penalties: dict[tuple[int, int], float] | None = None) -> Experience:
    """Rollouts of one question, each with its outcome and its calls."""
    traces: list[Trace] = []
    transitions: list[Transition] = []
    for place, (outcome, calls) in enumerate(told):
        steps = [a_step(number, call) for number, call in enumerate(calls)]
        traces.append(make_trace(steps, id=f"t{place}"))
        for number, (role, prompt, action) in enumerate(calls):
            reward = Reward(outcome, 0.0, (penalties or {}).get((place, number), 0.0))
            transitions.append(
                Transition(f"t{place}", f"s{number}", role, (prompt,), (action,), (-1.0,), reward, group="q")
            )
    return make_experience(transitions, traces)


def advantages(experience: Experience) -> list[float]:
    values = [np.zeros(len(t.action_ids)) for t in experience.transitions]
    return [float(row[0]) for row in branch(experience, values, CFG).advantages]


def test_a_plan_is_judged_beside_all_rollouts_and_a_split_beside_other_splits_only() -> None:
    good_split: list[Call] = [("P", 1, SPLIT), ("QDS", 2, 80)]
    poor_split: list[Call] = [("P", 1, SPLIT), ("QDS", 2, 81)]
    whole: list[Call] = [("P", 1, WHOLE), ("AG", 3, 90)]
    found = advantages(rollouts((0.4, good_split), (0.0, poor_split), (1.0, whole), (1.0, whole)))
    plans, rest = found[::2], found[1::2]
    assert plans == pytest.approx([0.4 - 2 / 3, 0.0 - 0.8, 1.0 - 1.4 / 3, 1.0 - 1.4 / 3])
    # The good split lost to the plan of not splitting, and is still the better split.
    assert rest == pytest.approx([0.4, -0.4, 0.0, 0.0])


def test_a_prompt_that_nobody_else_saw_is_judged_beside_the_longest_shared_beginning() -> None:
    split: Call = ("P", 1, SPLIT)
    same: list[Call] = [split, ("QDS", 2, 80)]
    found = advantages(
        rollouts(
            (1.0, [*same, ("AG", 10, 90)]),
            (0.0, [*same, ("AG", 11, 91)]),
            (0.6, [split, ("QDS", 2, 81), ("AG", 12, 92)]),
            (0.2, [("P", 1, WHOLE), ("AG", 13, 93)]),
        )
    )
    answers = [found[2], found[5], found[8], found[10]]
    # The third shares the plan with the first two, the last nothing but the question.
    assert answers == pytest.approx([1.0, -1.0, 0.6 - 0.5, 0.2 - 1.6 / 3])


def test_the_same_prompt_counts_more_than_the_way_to_it() -> None:
    one: list[Call] = [("P", 1, SPLIT), ("QDS", 2, 80), ("AG", 9, 90)]
    other: list[Call] = [("P", 1, SPLIT), ("QDS", 2, 81), ("AG", 9, 91)]
    third: list[Call] = [("P", 1, SPLIT), ("QDS", 2, 80), ("AG", 8, 92)]
    found = advantages(rollouts((1.0, one), (0.0, other), (0.5, third)))
    assert found[2] == pytest.approx(1.0), "beside the one rollout with the same prompt, not beside the third"


def test_rewards_are_added_up_in_the_order_of_the_rollouts() -> None:
    """Not in that of a set, which a resumed run would have otherwise."""
    rewards = [float(reward) for reward in np.random.default_rng(0).random(16)]
    found = advantages(rollouts(*((reward, [("P", 1, WHOLE)]) for reward in rewards)))
    assert found == [own - float(np.mean(rewards[:n] + rewards[n + 1 :])) for n, own in enumerate(rewards)]


def test_what_frozen_roles_did_still_tells_the_ways_apart() -> None:
    experience = rollouts(
        (1.0, [("P", 1, SPLIT), ("AG", 5, 90)]),
        (0.0, [("P", 1, SPLIT), ("AG", 6, 91)]),
        (0.0, [("P", 1, WHOLE), ("AG", 7, 92)]),
    )
    answers = replace(experience, transitions=tuple(of_roles(experience.transitions, ["AG"])))
    assert advantages(answers) == pytest.approx([1.0, -1.0, -0.5])


def test_a_penalty_falls_on_its_own_call_and_one_rollout_alone_says_nothing() -> None:
    alone = rollouts((1.0, [("P", 1, WHOLE), ("AG", 3, 90)]), penalties={(0, 1): -1.0})
    assert advantages(alone) == [0.0, -1.0]


@given(st.floats(0, 1), st.integers(2, 8))
def test_equal_rollouts_are_worth_exactly_nothing_and_are_left_out(reward: float, num: int) -> None:
    experience = rollouts(*[(reward, [("P", 1, WHOLE + place), ("AG", 3, 90)]) for place in range(num)])
    values = [np.zeros(1) for _ in experience.transitions]
    assert advantages(experience) == [0.0] * (2 * num)
    assert assign_credit(experience, values, CFG, nothing_else_teaches=True).rows == ()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0, 1)), min_size=2, max_size=8))
def test_calls_at_one_point_sum_to_nothing(told: list[tuple[int, int, float]]) -> None:
    """Nobody gains from being at a point: what one call wins there, the others lose."""
    experience = rollouts(*[(r, [("P", 1, plan), ("AG", 2 + plan, 90 + said)]) for plan, said, r in told])
    found = advantages(experience)
    assert sum(found[::2]) == pytest.approx(0.0, abs=1e-9)
    for plan in {plan for plan, _, _ in told}:
        there = [found[2 * n + 1] for n, (chosen, _, _) in enumerate(told) if chosen == plan]
        assert len(there) == 1 or sum(there) == pytest.approx(0.0, abs=1e-9)
