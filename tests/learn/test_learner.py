from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learn_builders import make_experience, make_step, make_trace, make_transition
from learn_runs import halve_model

from jade.config import BackboneConfig, Config, LearnConfig, PPOConfig
from jade.learn.checkpoint import trained_parameters
from jade.learn.guard import Alarm
from jade.learn.learner import Learner, _minibatches, step_share
from jade.learn.policy import load_policy
from jade.learn.train import learn_from
from jade.learn.transitions import Experience
from jade.types import Malformed, Step, Trace, Transition, Workflow

SETTINGS = {"ppo": {"learning_rate": 1e-3, "minibatches": 2}, "credit": {"rule": "shared"}}


def make_learner(tiny_model: Path, settings: dict[str, object] | None = None) -> Learner:
    cfg = LearnConfig.model_validate(settings or SETTINGS)
    return Learner(load_policy(BackboneConfig(model=str(tiny_model), device="cpu"), cfg.policy), cfg)


def make_mixed(num: int = 12) -> Experience:
    """Good planner calls, bad answerer calls, of different lengths."""
    return make_experience(
        [
            make_transition(f"t{n}", role=role, num_tokens=2 + n % 5, outcome=float(role == "P"), first_id=first)
            for n, (role, first) in zip(range(num), itertools.cycle([("P", 50), ("AG", 100)]), strict=False)
        ]
    )


def as_sampled(learner: Learner, experience: Experience) -> Experience:
    """The same calls with the log-probs that this policy itself gives them."""
    logps = learner.look_back(experience).logps
    pairs = zip(experience.transitions, logps, strict=True)
    return make_experience([dataclasses.replace(t, logprobs=tuple(logp.tolist())) for t, logp in pairs])


def weights_of(learner: Learner) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in learner.policy.parameters()]


def test_an_update_makes_rewarded_calls_likelier_and_others_less_likely(tiny_model: Path) -> None:
    learner = make_learner(tiny_model)
    experience = as_sampled(learner, make_mixed())
    before = learner.look_back(experience).logps
    learner.update(experience, iteration=0, seed=1)
    after = learner.look_back(experience).logps
    for transition, old, new in zip(experience.transitions, before, after, strict=True):
        assert (new.sum() > old.sum()) == (transition.reward.outcome == 1.0)


def test_a_learner_keeps_the_rule_it_began_with_when_its_file_is_changed(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from jade.learn.credit.shared import shared as rule\n")
    learner = make_learner(tiny_model, SETTINGS | {"credit": {"rule": f"{file}:rule"}})
    file.write_text("raise RuntimeError('half of an edit')\n")
    assert "policy" in learner.update(make_mixed(), iteration=0, seed=1)


def test_calls_are_looked_back_on_at_the_temperature_of_their_role(tiny_model: Path) -> None:
    own, cool, plain = (
        make_learner(tiny_model, SETTINGS | setting).look_back(make_mixed()).logps
        for setting in ({"role_temperature": {"P": 0.5}}, {"temperature": 0.5}, {})
    )
    for row, call in enumerate(make_mixed().transitions):
        assert own[row] == pytest.approx((cool if call.role == "P" else plain)[row], abs=1e-6)
        assert own[row] != pytest.approx((plain if call.role == "P" else cool)[row], abs=1e-3)


def test_a_role_may_have_an_entropy_bonus_of_its_own(tiny_model: Path) -> None:
    roles = sorted({call.role for call in make_mixed().transitions})
    bonuses: dict[str, dict[str, object]] = {
        "none": {},
        "all": {"entropy_weight": 0.5},
        "each": {"role_entropy": dict.fromkeys(roles, 0.5)},
        "planner": {"role_entropy": {"P": 0.5}},
    }
    gained = {}
    for name, ppo in bonuses.items():
        learner = make_learner(tiny_model, SETTINGS | {"ppo": {"learning_rate": 1e-3, **ppo}})
        learner.update(make_mixed(), iteration=0, seed=1)
        after = learner.update(make_mixed(), iteration=1, seed=1)
        gained[name] = {role: after[f"entropy/{role}"] for role in roles}
    assert gained["each"] == gained["all"]
    assert gained["planner"]["P"] > gained["none"]["P"]
    assert gained["planner"] != gained["all"]


def test_identical_seeds_give_identical_updates(tiny_model: Path) -> None:
    learners = [make_learner(tiny_model) for _ in range(2)]
    figures = [learner.update(make_mixed(), iteration=0, seed=7) for learner in learners]
    for one, other in zip(*map(weights_of, learners), strict=True):
        assert torch.equal(one, other)
    kept = [{k: v for k, v in f.items() if not k.startswith("seconds")} for f in figures]
    assert kept[0] == kept[1]


def test_pieces_of_any_size_give_the_same_step(tiny_model: Path) -> None:
    results = []
    for tokens_per_batch in (64, 4096):
        learner = make_learner(tiny_model, SETTINGS | {"policy": {"tokens_per_batch": tokens_per_batch}})
        learner.update(make_mixed(40), iteration=0, seed=3)
        results.append(weights_of(learner))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


class Watched(Learner):
    """Keeps the gradient of every optimiser step."""

    gradients: tuple[list[torch.Tensor], ...] = ()

    def _accumulate(self, *args: Any) -> torch.Tensor:
        loss = super()._accumulate(*args)
        weights = [weight for _, weight in trained_parameters(self.policy)]
        self.gradients += ([torch.zeros_like(w) if w.grad is None else w.grad.clone() for w in weights],)
        return loss


def learned_gradients(tiny_model: Path, traces: list[Trace], roles: tuple[str, ...]) -> list[torch.Tensor]:
    """All gradients of an update from these traces, as `jade train` does it."""
    settings = {"train_roles": roles, "ppo": {"learning_rate": 1e-3, "minibatches": 2}}
    cfg = Config.model_validate({"learn": settings})
    learner = Watched(load_policy(BackboneConfig(model=str(tiny_model), device="cpu"), cfg.learn.policy), cfg.learn)
    learn_from(traces, learner, cfg, iteration=0)
    return [gradient for step in learner.gradients for gradient in step]


def make_planned_traces(answering: Callable[[int], list[Step]]) -> list[Trace]:
    """Four questions, half of them answered rightly; the planner's calls are always the same."""
    plans = [make_step(0, "P", ids=range(20 + n, 24 + 2 * n), action=Workflow(("AG",))) for n in range(4)]
    traces = [make_trace([plan, *answering(n)], id=f"t{n}") for n, plan in enumerate(plans)]
    return [dataclasses.replace(trace, answer="Ada" if n % 2 else "Bob") for n, trace in enumerate(traces)]


def test_the_gradient_of_frozen_roles_is_exactly_zero(tiny_model: Path) -> None:
    """Whatever they say, however long and however badly it is penalised."""
    bad = make_planned_traces(
        lambda n: [make_step(place, "AG", ids=range(90, 99 + n), action=Malformed("?")) for place in (1, 2, 3)]
    )
    silent = make_planned_traces(lambda n: [])
    with_bad, without = (learned_gradients(tiny_model, traces, ("P",)) for traces in (bad, silent))
    assert any(gradient.any() for gradient in without)
    for one, other in zip(with_bad, without, strict=True):
        assert not (one - other).any()
    # The same calls do pull where their role learns, so that the zeros above are its being frozen.
    both = learned_gradients(tiny_model, bad, ("P", "AG"))
    assert any((one - other).any() for one, other in zip(both, without, strict=True))
    # And where nobody but frozen roles spoke, there is no step at all.
    alone = [dataclasses.replace(trace, steps=trace.steps[1:]) for trace in bad]
    assert learned_gradients(tiny_model, alone, ("P",)) == []


def test_a_learning_rate_of_zero_moves_nothing(tiny_model: Path) -> None:
    learner = make_learner(tiny_model, {"ppo": {"learning_rate": 0.0, "critic_learning_rate": 0.0}})
    before = weights_of(learner)
    learner.update(make_mixed(), iteration=0, seed=0)
    assert all(torch.equal(one, other) for one, other in zip(before, weights_of(learner), strict=True))


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_a_step_far_below_bfloat16s_digits_moves_weights_published_in_it_and_its_moments_are_float32(
    tiny_model: Path, tmp_path: Path, adapt: str
) -> None:
    half = halve_model(tiny_model, tmp_path / "half")
    rates = {"learning_rate": 1e-6, "critic_learning_rate": 1e-6, "minibatches": 1}
    learner = make_learner(half, SETTINGS | {"ppo": rates, "policy": {"adapt": adapt}})
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():  # adapters and the value head begin at 0, around which bfloat16 has digits for any step
        for _, weight in trained_parameters(learner.policy):
            weight.copy_((weight + 0.05 * torch.randn(weight.shape, generator=generator)).bfloat16())
    before = {name: weight.detach().clone() for name, weight in trained_parameters(learner.policy)}
    learner.update(as_sampled(learner, make_mixed()), iteration=0, seed=1)
    for name, weight in trained_parameters(learner.policy):
        large = before[name].abs() > 0.01
        assert (weight != before[name])[large].any(), name
        assert torch.equal(weight.bfloat16()[large], before[name].bfloat16()[large]), name
        moments = learner.optimiser.state[weight]
        assert {moments[moment].dtype for moment in ("exp_avg", "exp_avg_sq")} == {torch.float32}, name


def test_figures_are_reported_over_all_and_for_each_role(tiny_model: Path) -> None:
    figures = make_learner(tiny_model).update(make_mixed(), iteration=0, seed=0)
    for name in ("policy", "value", "entropy", "approx_kl", "clipped", "explained_variance"):
        assert {name, f"{name}/P", f"{name}/AG"} <= figures.keys()
    for name in ("advantage", "advantage_std"):
        assert {name, f"{name}/P", f"{name}/AG"} <= figures.keys()
    assert figures["tokens/P"] + figures["tokens/AG"] == sum(len(t.action_ids) for t in make_mixed().transitions)
    assert figures["optimiser_steps"] == 2
    assert figures["update_tokens"] == sum(2 + len(t.action_ids) for t in make_mixed().transitions)
    # All twelve have one prompt of two tokens: the rows of the two steps hold it once each.
    assert figures["shared"] == pytest.approx(10 * 2 / figures["update_tokens"])


def test_advantages_are_reported_as_the_rule_gave_them_and_not_as_they_were_normalised(tiny_model: Path) -> None:
    calls = [make_transition(f"t{n}", f"s{n}", "AG", outcome=n / 10, group="q") for n in range(4)]
    settings: dict[str, object] = {"credit": {"rule": "group"}, "policy": {"critic": "none"}}
    figures = make_learner(tiny_model, settings).update(make_experience(calls), iteration=0, seed=0)
    assert figures["advantage/AG"] == pytest.approx(0.0)
    assert figures["advantage_std/AG"] == figures["advantage_std"] == pytest.approx(np.std([0.0, 0.1, 0.2, 0.3]))


@pytest.mark.parametrize("settings", [SETTINGS, {"credit": {"rule": "group"}, "policy": {"critic": "none"}}])
def test_the_gap_is_how_far_the_samplers_log_probs_are_from_the_learners(
    tiny_model: Path, settings: dict[str, object]
) -> None:
    """Nothing for one's own; what they differ by, as a mean and at most, where the sampler had other weights."""
    own = as_sampled(make_learner(tiny_model, settings), make_mixed())
    figures = make_learner(tiny_model, settings).update(own, iteration=0, seed=0)
    assert figures["logp_gap"] < 1e-6
    assert figures["logp_gap_max"] < 1e-6

    # Off by 0.5 in the first token of a call and by 0.1 in the others, to either side.
    off = [
        dataclasses.replace(call, logprobs=(call.logprobs[0] - 0.5, *(logp + 0.1 for logp in call.logprobs[1:])))
        for call in own.transitions
    ]
    figures = make_learner(tiny_model, settings).update(make_experience(off), iteration=0, seed=0)
    num_calls, num_tokens = len(off), sum(len(call.action_ids) for call in off)
    expected = (0.5 * num_calls + 0.1 * (num_tokens - num_calls)) / num_tokens
    assert figures["logp_gap"] == pytest.approx(expected, abs=1e-5)
    assert figures["logp_gap_max"] == pytest.approx(0.5, abs=1e-5)

    moved = make_learner(tiny_model, settings)
    with torch.no_grad():
        for _, weight in moved.policy.policy_parameters():
            weight.mul_(1.5)
    after = moved.look_back(own).logps
    apart = np.abs(np.concatenate(after) - np.concatenate([np.array(call.logprobs) for call in own.transitions]))
    figures = moved.update(own, iteration=0, seed=0)
    assert figures["logp_gap"] == pytest.approx(apart.mean(), abs=1e-6)
    assert figures["logp_gap_max"] == pytest.approx(apart.max(), abs=1e-6)
    assert figures["logp_gap"] > 0.01


def test_what_the_last_step_did_is_seen_on_a_sample_of_the_calls_it_learned_from(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS | {"ppo": {"learning_rate": 1e-2, "minibatches": 1}}
    for sample, looked_at in ((64, range(12)), (4, (0, 3, 6, 9))):
        monkeypatch.setattr("jade.learn.learner.AFTER_SAMPLE", sample)
        learner = make_learner(tiny_model, settings)
        own = as_sampled(learner, make_mixed())
        figures = learner.update(own, iteration=0, seed=0)
        after = learner.look_back(own).logps
        moved = [after[row] - np.array(own.transitions[row].logprobs) for row in looked_at]
        expected = np.mean([np.exp(ratio) - ratio - 1 for row in moved for ratio in row])
        assert figures["last_kl"] == pytest.approx(0.0, abs=1e-6)
        assert figures["kl_after"] == pytest.approx(expected, rel=1e-3)
        assert figures["kl_after"] > 1e-3


def test_the_critic_learns_to_expect_what_is_earned(tiny_model: Path) -> None:
    settings = SETTINGS | {"ppo": {"learning_rate": 0.0, "critic_learning_rate": 0.02, "value_weight": 1.0}}
    learner = make_learner(tiny_model, settings)
    experience = make_experience([make_transition(f"t{n}", outcome=0.8) for n in range(8)])
    for iteration in range(60):
        learner.update(experience, iteration=iteration, seed=iteration)
    assert float(learner.look_back(experience).values[0].mean()) == pytest.approx(0.8, abs=0.1)


def test_a_divergence_from_the_start_is_priced(tiny_model: Path) -> None:
    settings = SETTINGS | {"ppo": {"learning_rate": 1e-3, "kl_weight": 0.1, "minibatches": 1}}
    learner = make_learner(tiny_model, settings)
    experience = as_sampled(learner, make_mixed())
    assert learner.update(experience, iteration=0, seed=0)["reference_kl"] == pytest.approx(0.0, abs=1e-6)
    assert learner.update(experience, iteration=1, seed=0)["reference_kl"] > 1e-5


def test_a_reference_has_no_critic_to_hold_and_to_run(tiny_model: Path) -> None:
    settings = SETTINGS | {"policy": {"critic": "separate"}, "ppo": {"learning_rate": 1e-3, "kl_weight": 0.1}}
    learner = make_learner(tiny_model, settings)
    assert learner.reference is not None
    assert sum(p.numel() for p in learner.reference.parameters()) == sum(
        p.numel() for p in learner.policy.model.parameters()
    )
    assert learner.update(as_sampled(learner, make_mixed()), iteration=0, seed=0)["reference_kl"] >= 0.0


def test_a_warm_up_raises_the_step_size_iteration_by_iteration(tiny_model: Path) -> None:
    learner = make_learner(tiny_model, {"ppo": {"learning_rate": 1.0, "warmup": 4, "critic_learning_rate": 0.0}})
    learner.scale = 0.0
    assert learner.update(make_mixed(2), iteration=0, seed=0)["learning_rate"] == 0.0
    learner.scale = 1e-6
    assert learner.update(make_mixed(2), iteration=1, seed=0)["learning_rate"] == pytest.approx(0.5e-6)


def test_a_gradient_that_is_not_finite_is_never_taken(tiny_model: Path) -> None:
    learner = make_learner(tiny_model)
    before = weights_of(learner)
    spoilt = [
        dataclasses.replace(t, reward=dataclasses.replace(t.reward, outcome=float("nan")))
        for t in make_mixed().transitions
    ]
    with pytest.raises(Alarm, match="not finite"):
        learner.update(make_experience(spoilt), iteration=0, seed=0)
    assert all(torch.equal(one, other) for one, other in zip(before, weights_of(learner), strict=True))


class Breaking(Learner):
    """Its second step's gradient is not finite."""

    num_gathered = 0
    after_first: tuple[torch.Tensor, ...] = ()

    def _accumulate(self, *args: Any) -> torch.Tensor:
        if self.num_gathered == 1:
            self.after_first = tuple(weights_of(self))
        loss = super()._accumulate(*args)
        self.num_gathered += 1
        if self.num_gathered == 2:
            _, weight = next(self.policy.policy_parameters())
            assert weight.grad is not None
            weight.grad *= torch.nan
        return loss


@pytest.mark.parametrize("fused", [False, True])
def test_an_update_ends_at_the_first_step_that_is_not_finite(tiny_model: Path, fused: bool) -> None:
    """Also where the optimiser passes by itself and the alarm comes at the end."""
    cfg = LearnConfig.model_validate(SETTINGS | {"ppo": {"learning_rate": 1e-3, "minibatches": 4}})
    learner = Breaking(load_policy(BackboneConfig(model=str(tiny_model), device="cpu"), cfg.policy), cfg)
    for group in learner.optimiser.param_groups:
        group["fused"] = fused
    before = weights_of(learner)
    with pytest.raises(Alarm, match="not finite: the gradient"):
        learner.update(make_mixed(40), iteration=0, seed=1)
    assert learner.num_gathered == (4 if fused else 2)
    assert not all(torch.equal(one, other) for one, other in zip(before, learner.after_first, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(learner.after_first, weights_of(learner), strict=True))


def test_nothing_to_learn_from_is_no_update(tiny_model: Path) -> None:
    assert make_learner(tiny_model).update(make_experience([]), iteration=0, seed=0) == {}


def test_group_credit_needs_no_critic(tiny_model: Path) -> None:
    learner = make_learner(tiny_model, SETTINGS | {"credit": {"rule": "group"}, "policy": {"critic": "none"}})
    rollouts = [make_transition(f"t{n}", outcome=float(n % 2), group="q") for n in range(4)]
    figures = learner.update(make_experience(rollouts), iteration=0, seed=0)
    assert figures["value"] == 0.0
    assert figures["gradient_norm"] > 0


WITHOUT_CRITIC: dict[str, object] = {"credit": {"rule": "group", "normalise": "none"}, "policy": {"critic": "none"}}


def even_and_uneven() -> list[Transition]:
    uneven = [make_transition(f"u{n}", outcome=float(n % 2), group="u", first_id=9 + 7 * n) for n in range(4)]
    even = [make_transition(f"e{n}", outcome=1.0, group="e", num_tokens=5, first_id=90 + n) for n in range(6)]
    return even + uneven


def test_rollouts_that_earned_the_same_are_left_out_and_change_nothing(tiny_model: Path) -> None:
    together, alone = (make_learner(tiny_model, WITHOUT_CRITIC | {"ppo": {"minibatches": 1}}) for _ in range(2))
    figures = together.update(make_experience(even_and_uneven()), iteration=0, seed=0)
    alone.update(make_experience(even_and_uneven()[6:]), iteration=0, seed=0)
    assert figures["left_out"] == pytest.approx(0.6)
    assert figures["tokens/AG"] == 4 * 3
    for one, other in zip(weights_of(together), weights_of(alone), strict=True):
        torch.testing.assert_close(one, other, atol=2e-7, rtol=1e-4)


def test_an_update_in_which_no_call_teaches_anything_moves_nothing(tiny_model: Path) -> None:
    learner = make_learner(tiny_model, WITHOUT_CRITIC)
    before = weights_of(learner)
    figures = learner.update(make_experience(even_and_uneven()[:6]), iteration=0, seed=0)
    assert figures["left_out"] == 1.0
    assert "optimiser_steps" not in figures
    assert all(torch.equal(one, other) for one, other in zip(before, weights_of(learner), strict=True))


@pytest.mark.parametrize(
    "settings", [{"policy": {"critic": "head"}}, {"ppo": {"kl_weight": 0.1}}, {"ppo": {"entropy_weight": 0.1}}]
)
def test_what_a_critic_or_another_term_learns_from_is_not_left_out(
    tiny_model: Path, settings: dict[str, object]
) -> None:
    learner = make_learner(tiny_model, WITHOUT_CRITIC | settings)
    assert learner.update(make_experience(even_and_uneven()), iteration=0, seed=0)["left_out"] == 0.0


@pytest.mark.parametrize(
    ("ppo", "kept"),
    [
        ({"role_entropy": {"P": 0.1}}, {"P"}),
        ({"role_entropy": {"P": 0.0}}, set()),
        ({"entropy_weight": 0.1, "role_entropy": {"P": 0.0}}, {"AG"}),
        ({"entropy_weight": 0.1}, {"P", "AG"}),
    ],
)
def test_of_rollouts_that_earned_the_same_the_roles_with_an_entropy_bonus_still_learn(
    tiny_model: Path, ppo: dict[str, object], kept: set[str]
) -> None:
    even = [make_transition(f"e{n // 2}", f"s{n}", ("P", "AG")[n % 2], outcome=1.0, first_id=9 + n) for n in range(8)]
    figures = make_learner(tiny_model, WITHOUT_CRITIC | {"ppo": ppo}).update(make_experience(even), iteration=0, seed=0)
    assert figures["left_out"] == 1 - len(kept) / 2
    assert {name.partition("/")[2] for name in figures if name.startswith("tokens/")} == kept


@pytest.mark.parametrize(
    ("decay", "expected"), [("none", [0.5, 1.0, 1.0, 1.0, 1.0]), ("linear", [0.5, 0.775, 0.55, 0.325, 0.1])]
)
def test_a_decaying_step_size_falls_evenly_to_a_tenth_in_the_last_iteration(decay: str, expected: list[float]) -> None:
    cfg = LearnConfig.model_validate({"iterations": 5, "ppo": {"warmup": 2, "decay": decay}})
    assert [step_share(iteration, cfg) for iteration in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize(("together", "most"), [(True, 1), (False, 4)])
def test_the_calls_of_a_question_go_into_one_step_where_that_is_wanted(together: bool, most: int) -> None:
    asked = [make_transition(f"t{n}", group=f"q{n % 20}") for n in range(160)]
    ppo = PPOConfig(minibatches=4, epochs=2, whole_questions=together)
    steps = list(_minibatches(make_experience(asked), range(160), ppo, seed=1))
    assert len(steps) == 8
    for epoch in (steps[:4], steps[4:]):
        assert sorted(row for step in epoch for row in step) == list(range(160))
        held = [{asked[row].group for row in step} for step in epoch]
        assert max(sum(question in step for step in held) for question in set.union(*held)) == most
