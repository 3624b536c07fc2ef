from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_experience, make_step, make_trace

from jade.config import CreditConfig
from jade.learn.credit.group import group
from jade.learn.transitions import flatten, of_roles
from jade.types import Effort, Question, Reward, Step

kinds = st.lists(st.sampled_from(["P", "QR", "R", "DS", "AG", "mute"]), max_size=12)


def steps_of(kinds_of_steps: list[str]) -> list[Step]:
    return [
        make_step(number, "AG" if kind == "mute" else kind, ids=() if kind == "mute" else (number, 5), tool=kind == "R")
        for number, kind in enumerate(kinds_of_steps)
    ]


@given(kinds)
def test_every_trainable_step_yields_one_transition_in_order_and_tools_yield_none(kinds_of_steps: list[str]) -> None:
    steps = steps_of(kinds_of_steps)
    rewards = {step.id: Reward(outcome=number) for number, step in enumerate(steps)}
    transitions = flatten([make_trace(steps)], [rewards])
    expected = [step for step, kind in zip(steps, kinds_of_steps, strict=True) if kind not in ("R", "mute")]
    assert [t.step for t in transitions] == [step.id for step in expected]
    assert [t.reward for t in transitions] == [rewards[step.id] for step in expected]


@given(kinds)
def test_token_ids_and_logprobs_are_those_of_sampling(kinds_of_steps: list[str]) -> None:
    steps = steps_of(kinds_of_steps)
    by_id = {step.id: step.generation for step in steps}
    for transition in flatten([make_trace(steps)], [{step.id: Reward() for step in steps}]):
        sampled = by_id[transition.step]
        assert sampled is not None
        assert transition.prompt_ids is sampled.prompt_ids
        assert transition.action_ids is sampled.token_ids
        assert len(transition.action_ids) == len(transition.logprobs)


def test_transitions_of_one_question_share_a_group_and_keep_the_version_that_sampled() -> None:
    traces = [make_trace([make_step(0)], id=name) for name in ("first", "second")]
    transitions = flatten(traces, [{"s0": Reward()}] * 2)
    assert [(t.trace, t.policy_version) for t in transitions] == [("first", 4), ("second", 4)]
    assert len({t.group for t in transitions}) == 1


def test_what_was_not_asked_the_same_shares_no_group() -> None:
    asked = Question("train_0", "Who?", ("Ada",), "nq")
    traces = [
        make_trace([make_step(0)], question=asked),
        make_trace([make_step(0)], question=replace(asked, dataset="hotpotqa")),
        make_trace([make_step(0)], question=replace(asked, text="Where?")),
        *(replace(make_trace([make_step(0)], question=asked), effort=Effort(alpha, 0.2)) for alpha in (0.1, 0.3)),
    ]
    named = [replace(trace, id=f"t{number}") for number, trace in enumerate(traces)]
    transitions = flatten(named, [{"s0": Reward(outcome=float(number))} for number in range(5)])
    assert len({t.group for t in transitions}) == 5
    # Each is alone, so that none has a baseline but itself.
    credit = group(make_experience(transitions, named), [np.zeros(2)] * 5, CreditConfig(rule="group"))
    assert not np.concatenate(credit.advantages).any()


def test_frozen_roles_are_left_out_of_the_batch() -> None:
    transitions = flatten([make_trace(steps_of(["P", "QR", "AG"]))], [{f"s{n}": Reward() for n in range(3)}])
    assert [t.role for t in of_roles(transitions, ("P",))] == ["P"]
