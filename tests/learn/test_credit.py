from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_experience, make_step, make_trace, make_transition
from learn_faults import ANSWERS
from learn_runs import make_config, make_run

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config, CreditConfig
from jade.errors import ConfigError
from jade.learn.credit.base import Credit, Floats, gae
from jade.learn.credit.rules import RULES, assign_credit, find_rule
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.policy import load_policy
from jade.learn.transitions import Experience
from jade.types import Observation, Passage, Prompt, Question, Selection, Transition

EXAMPLE = Path(__file__).parents[2] / "examples" / "mixed_motives.py"
numbers = st.floats(-5, 5).map(lambda x: round(x, 3))
PLAIN = CreditConfig(normalise="none")


def zeros(transitions: list[Transition]) -> list[Floats]:
    return [np.zeros(len(t.action_ids)) for t in transitions]


def brute_force_gae(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """The definition: a (gamma lam)-discounted sum of one-step errors, summed anew for every position."""
    padded = [*values, 0.0]
    errors = [reward + gamma * padded[t + 1] - padded[t] for t, reward in enumerate(rewards)]
    return [sum((gamma * lam) ** (k - t) * errors[k] for k in range(t, len(errors))) for t in range(len(errors))]


@given(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12),
    st.floats(0.1, 1).map(lambda x: round(x, 2)),
    st.floats(0, 1).map(lambda x: round(x, 2)),
)
def test_gae_equals_the_brute_force_sum(pairs: list[tuple[float, float]], gamma: float, lam: float) -> None:
    rewards, values = map(list, zip(*pairs, strict=True))
    estimated = gae(np.array(rewards), np.array(values), gamma, lam)
    np.testing.assert_allclose(estimated, brute_force_gae(rewards, values, gamma, lam), atol=1e-9)


def test_trajectory_brings_the_team_reward_to_every_token_of_the_trace() -> None:
    transitions = [make_transition(step=f"s{n}", outcome=0.8, cost=0.3, num_tokens=n + 1) for n in range(3)]
    credit = RULES["trajectory"](make_experience(transitions), zeros(transitions), PLAIN)
    assert [len(row) for row in credit.advantages] == [1, 2, 3]
    np.testing.assert_allclose(np.concatenate(credit.advantages), 0.5)
    np.testing.assert_allclose(np.concatenate(credit.returns), 0.5)


def test_trajectory_lets_a_penalty_reach_the_steps_before_it_and_none_after_it() -> None:
    transitions = [make_transition(step=f"s{n}", outcome=1.0, penalty=-1.0 if n == 1 else 0.0) for n in range(3)]
    credit = RULES["trajectory"](make_experience(transitions), zeros(transitions), PLAIN)
    assert [row[0] for row in credit.advantages] == [0.0, 0.0, 1.0]


def test_trajectory_keeps_interleaved_traces_apart() -> None:
    transitions = [make_transition(trace, outcome=float(trace == "good")) for trace in ("good", "bad") * 2]
    credit = RULES["trajectory"](make_experience(transitions), zeros(transitions), PLAIN)
    assert [row[0] for row in credit.advantages] == [1.0, 0.0, 1.0, 0.0]


def test_trajectory_discounts_over_the_whole_flattened_sequence() -> None:
    transitions = [make_transition(step=f"s{n}", outcome=1.0, num_tokens=2) for n in range(2)]
    cfg = CreditConfig(normalise="none", gamma=0.5)
    credit = RULES["trajectory"](make_experience(transitions), zeros(transitions), cfg)
    np.testing.assert_allclose(np.concatenate(credit.advantages), [0.125, 0.25, 0.5, 1.0])


def test_shared_gives_each_call_the_team_reward_and_its_own_penalty_only() -> None:
    transitions = [make_transition(step=f"s{n}", outcome=1.0, penalty=-2.0 if n == 1 else 0.0) for n in range(3)]
    credit = RULES["shared"](make_experience(transitions), zeros(transitions), PLAIN)
    assert [row[0] for row in credit.advantages] == [1.0, -1.0, 1.0]


@given(st.lists(numbers, min_size=3, max_size=3))
def test_shared_returns_are_the_reward_when_values_are_off(values: list[float]) -> None:
    transition = make_transition(outcome=0.7, num_tokens=3)
    credit = RULES["shared"](make_experience([transition]), [np.array(values)], PLAIN)
    np.testing.assert_allclose(credit.returns[0], 0.7, atol=1e-9)
    np.testing.assert_allclose(credit.advantages[0], 0.7 - np.array(values), atol=1e-9)


def test_group_compares_rollouts_of_one_question_counting_each_once() -> None:
    long = [make_transition("long", f"s{n}", outcome=1.0, group="q") for n in range(5)]
    short = [make_transition("short", "s0", outcome=0.0, group="q")]
    other = [make_transition("other", "s0", outcome=0.4, group="another")]
    transitions = long + short + other
    credit = RULES["group"](make_experience(transitions), zeros(transitions), PLAIN)
    assert [row[0] for row in credit.advantages] == [0.5] * 5 + [-0.5, 0.0]


def test_group_penalises_the_offending_step_alone() -> None:
    transitions = [
        make_transition(trace, step, outcome=float(trace == "a"), penalty=-1.0 if (trace, step) == ("b", "s1") else 0.0)
        for trace, step in itertools.product("ab", ("s0", "s1"))
    ]
    credit = RULES["group"](make_experience(transitions), zeros(transitions), PLAIN)
    assert [row[0] for row in credit.advantages] == [0.5, 0.5, -0.5, -1.5]


def test_group_with_deviation_scales_to_one_and_survives_equal_rollouts() -> None:
    cfg = CreditConfig(normalise="none", group_std=True)
    apart = [make_transition(t, outcome=o, group="q") for t, o in (("a", 0.2), ("b", 0.4))]
    equal = [make_transition(t, outcome=0.3, group="r") for t in ("c", "d")]
    credit = RULES["group"](make_experience(apart + equal), zeros(apart + equal), cfg)
    np.testing.assert_allclose([row[0] for row in credit.advantages], [-1.0, 1.0, 0.0, 0.0], atol=1e-9)


GROUP = CreditConfig(rule="group", normalise="none")


@given(numbers, st.integers(2, 9))
def test_rollouts_that_earned_the_same_have_an_advantage_of_exactly_zero(reward: float, num: int) -> None:
    transitions = [make_transition(f"t{n}", outcome=reward / 3, cost=0.1) for n in range(num)]
    credit = RULES["group"](make_experience(transitions), zeros(transitions), GROUP)
    assert not np.concatenate(credit.advantages).any()


def uneven_and_even() -> list[Transition]:
    """A question whose rollouts differ, one where nothing does, and one where only a format does."""
    even = [make_transition(f"e{n}", outcome=0.3, group="even") for n in range(3)]
    uneven = [make_transition(f"u{n}", outcome=n / 2, group="uneven") for n in range(3)]
    misspelt = [make_transition(f"m{n}", outcome=0.3, penalty=-float(n == 1), group="misspelt") for n in range(2)]
    return even + uneven + misspelt


@pytest.mark.parametrize("normalise", ["none", "batch", "role"])
def test_questions_that_teach_nothing_are_left_out_and_the_rest_is_normalised_without_them(
    normalise: Literal["none", "batch", "role"],
) -> None:
    transitions = uneven_and_even()
    cfg = GROUP.model_copy(update={"normalise": normalise})
    credit = assign_credit(make_experience(transitions), zeros(transitions), cfg, nothing_else_teaches=True)
    assert credit.rows == (3, 4, 5, 6, 7)
    told = np.array([credit.advantages[row][0] for row in credit.rows])
    plain = np.array([-0.5, 0.0, 0.5, 0.0, -1.0])
    np.testing.assert_allclose(told, plain if normalise == "none" else (plain - plain.mean()) / plain.std())


@pytest.mark.parametrize(("settings", "alone"), [({"skip_even": False}, True), ({}, False), ({"rule": "shared"}, True)])
def test_nothing_is_left_out_unless_asked_by_group_credit_with_nothing_else_to_learn(
    settings: dict[str, object], alone: bool
) -> None:
    transitions = uneven_and_even()
    cfg = CreditConfig.model_validate({"rule": "group"} | settings)
    credit = assign_credit(make_experience(transitions), zeros(transitions), cfg, nothing_else_teaches=alone)
    assert credit.rows == tuple(range(8))


@given(st.lists(st.tuples(st.sampled_from(["P", "AG"]), numbers), min_size=2, max_size=10))
def test_normalisation_by_role_leaves_each_role_centred_on_its_own(pairs: list[tuple[str, float]]) -> None:
    transitions = [make_transition(f"t{n}", role=role, outcome=x) for n, (role, x) in enumerate(pairs)]
    cfg = CreditConfig(rule="shared", normalise="role")
    credit = assign_credit(make_experience(transitions), zeros(transitions), cfg)
    for role in {role for role, _ in pairs}:
        tokens = np.concatenate([r for r, t in zip(credit.advantages, transitions, strict=True) if t.role == role])
        assert abs(tokens.mean()) < 1e-6
        assert tokens.std() == pytest.approx(1.0, abs=1e-6) or np.allclose(tokens, 0, atol=1e-6)


def test_normalisation_over_the_batch_keeps_roles_comparable() -> None:
    transitions = [make_transition("a", role="P", outcome=1.0), make_transition("b", role="AG", outcome=0.0)]
    credit = assign_credit(make_experience(transitions), zeros(transitions), CreditConfig(rule="shared"))
    assert [row[0] for row in credit.advantages] == [1.0, -1.0]


def mixed_experience() -> tuple[list[Transition], list[Floats], Experience]:
    passages = (Passage("1", "A", "Ada wrote it."), Passage("2", "B", "Nothing here."))
    seen = Observation("Who?", passages=passages)
    steps = [make_step(0, "P"), make_step(1, "DS", action=Selection((1,)), observation=seen), make_step(2, "AG")]
    trace = make_trace(steps, question=Question("q", "Who?", ("Ada",)))
    transitions = [make_transition(step=s.id, role=s.role, num_tokens=2, outcome=0.5, cost=0.2) for s in steps]
    return transitions, zeros(transitions), make_experience(transitions, [trace])


def test_a_plugged_in_rule_gives_every_role_its_own_motive() -> None:
    _, values, experience = mixed_experience()
    cfg = CreditConfig(rule=f"{EXAMPLE}:mixed_motives", normalise="none")
    credit = assign_credit(experience, values, cfg)
    # The planner pays the cost, the selector kept the wrong passage and dropped the right one, the answerer is paid.
    np.testing.assert_allclose([row[0] for row in credit.advantages], [0.3, 0.0, 0.5], atol=1e-12)


class Credited(Learner):
    """Keeps what its rule was given, and what it gave."""

    def __init__(self, config: Config) -> None:
        super().__init__(load_policy(config.backbone, config.learn.policy, config.seed), config.learn)
        self.kept: list[tuple[Experience, Credit]] = []

    def _credit(self, experience: Experience, values: Sequence[Floats]) -> Credit:
        credit = super()._credit(experience, values)
        self.kept.append((experience, credit))
        return credit


def select_the_first(prompt: Prompt) -> str:
    """A team that searches, keeps one passage, and knows the answer to every second question."""
    if prompt.role == "P":
        return "<workflow>R,DS,AG</workflow>"
    if prompt.role == "DS":
        return "<id>Document0</id>"
    asked = prompt.user.rpartition("Question: ")[2]
    return f"<answer>{ANSWERS.get(asked, 'unknown') if len(asked) % 2 else 'unknown'}</answer>"


async def test_an_iteration_with_a_plugged_in_rule_pays_every_role_by_its_own_motive(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Beside the shipped rule `shared`, from the same traces: the planner is paid alike, nobody else is."""
    for name in ("planner", "selector", "answerer"):  # a scripted team reads no instructions, and they take time
        (tmp_path / f"{name}.md").write_text(f"{name}.")
    settings = {
        "team": {"prompts": str(tmp_path)},
        "retrieval": {"k": 2},
        "reward": {"alpha": 0.3, "beta": 0.15},
        "learn": {
            "iterations": 1,
            "questions_per_iteration": 5,
            "credit": {"rule": f"{EXAMPLE}:mixed_motives", "normalise": "none"},
        },
    }
    config = make_config(tiny_model, settings)
    learner = Credited(config)
    run = make_run(config, tmp_path / "run", learner=learner, backbone=ScriptedBackbone(select_the_first))
    assert (await run.train()).iteration == 1
    (row,) = read_journal(tmp_path / "run", "iteration")
    assert row["gradient_norm"] > 0
    ((experience, own),) = learner.kept
    calls = experience.transitions
    shared = RULES["shared"](experience, zeros(list(calls)), config.learn.credit)
    assert {call.role for call in calls} == {"P", "DS", "AG"}
    assert {call.reward.outcome for call in calls} >= {0.0, 1.0}
    qualities = set()
    for call, mine, teams in zip(calls, own.advantages, shared.advantages, strict=True):
        assert call.reward.cost > 0
        if call.role == "DS":
            trace = experience.traces[call.trace]
            (step,) = [step for step in trace.steps if step.id == call.step]
            holds = [trace.question.answers[0] in passage.text for passage in step.observation.passages]
            quality = sum(held == (place == 0) for place, held in enumerate(holds)) / 2
            qualities.add(quality)
            np.testing.assert_allclose(mine, quality)
        else:
            np.testing.assert_allclose(mine, teams + (0.0 if call.role == "P" else call.reward.cost))
    assert len(qualities) > 1


@pytest.mark.parametrize("name", ["nonsense", "jade.types:missing", "no.such.module:rule", "absent.py:rule"])
def test_an_unknown_rule_is_refused_by_the_name_of_its_field(name: str) -> None:
    with pytest.raises(ConfigError, match=r"learn\.credit\.rule"):
        find_rule(name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rule = 3", "is no function but 3"),
        ("def (", "cannot be loaded: SyntaxError"),
        ("rule = undefined", "cannot be loaded: NameError"),
        ("raise SystemExit(0)", "cannot be loaded: SystemExit"),
    ],
)
def test_a_rule_that_cannot_be_called_is_refused_before_any_rollout(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(ConfigError, match=rf"learn\.credit\.rule: .*{why}"):
        find_rule(f"{tmp_path / 'own.py'}:rule")


@pytest.mark.parametrize(
    ("gives", "why"),
    [
        ("None", "gave NoneType instead of a Credit"),
        ("Credit(tuple(values)[1:], tuple(values))", "gave 2 advantages for 3 transitions"),
        ("Credit(tuple(values), tuple(v[:1] for v in values))", r"gave returns of shape \(1,\) for transition 0"),
        # As many numbers as there are tokens, but at others than their own.
        ("Credit((values[0][:1], np.append(values[1], 0.0), values[2]), tuple(values))", r"gave advantages of shape"),
    ],
)
def test_a_rule_whose_numbers_do_not_fit_the_tokens_is_told_so(tmp_path: Path, gives: str, why: str) -> None:
    text = "import numpy as np\nfrom jade.learn.credit.base import Credit\ndef rule(experience, values, cfg):\n"
    (tmp_path / "own.py").write_text(f"{text}    return {gives}\n")
    _, values, experience = mixed_experience()
    with pytest.raises(ConfigError, match=rf"learn\.credit\.rule: .*{why}"):
        assign_credit(experience, values, CreditConfig(rule=f"{tmp_path / 'own.py'}:rule"))
