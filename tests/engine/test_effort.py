"""The dial: one scale, the same words for the planner in training and at inference."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from engine_builders import ROOT_QUESTION, by_question, crew, plan, script

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config, RewardConfig, dump_config, load_config
from jade.engine.effort import USUAL_DIAL, across, draw_prices, effort_of, prices_at
from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.types import Effort


@pytest.mark.parametrize(
    ("effort", "line"),
    [
        ("low", "Prices: turn 0.40, search 0.40"),
        ("0.25", "Prices: turn 0.30, search 0.30"),
        ("medium", "Prices: turn 0.20, search 0.20"),
        ("high", "Prices: turn 0.00, search 0.00"),
    ],
)
async def test_the_planner_reads_an_effort_as_prices_and_nobody_else_does(effort: str, line: str) -> None:
    config = load_config(None, ["reward.dial=0.4", f"reward.effort={effort}"])
    voice = script(P=by_question({ROOT_QUESTION.text: plan("QDS")}, plan("R,AG")))
    await solve(ROOT_QUESTION, crew(voice), effort=effort_of(config.reward))
    assert len(voice.put_to("P")) == 3
    assert all(line in seen.splitlines() for seen in voice.put_to("P"))
    assert not any("Prices" in prompt.user for prompt in voice.prompts if prompt.role != "P")


async def test_a_price_drawn_in_training_reads_as_the_same_price_asked_for() -> None:
    drawn = draw_prices(0.4, seed=3)
    assert drawn is not None
    training, asking = script(), script()
    await solve(ROOT_QUESTION, crew(training), effort=drawn)
    await solve(ROOT_QUESTION, crew(asking), effort=Effort(drawn.alpha, drawn.beta))
    assert training.put_to("P") == asking.put_to("P")
    # Two decimals are read, and no more are charged.
    assert f"Prices: turn {drawn.alpha}" in training.put_to("P")[0]


def test_more_effort_never_costs_more() -> None:
    prices = [prices_at(step / 20, 0.3) for step in range(21)]
    assert prices[0] == Effort(0.3, 0.3)
    assert prices[-1] == Effort(0.0, 0.0)
    assert all(one.alpha >= other.alpha for one, other in pairwise(prices))


def test_the_other_side_of_the_dial_never_pays_for_turns() -> None:
    """Of a dial with three decimals the end is rounded up; what lies across it read `-0.00`."""
    assert str(across(Effort(0.13, 0.0), 0.126)) == str(Effort(0.0, 0.13))


def test_every_effort_lies_within_what_training_draws() -> None:
    drawn = [draw_prices(0.3, seed) for seed in range(500)]
    alphas, betas = ([getattr(each, name) for each in drawn] for name in ("alpha", "beta"))
    for prices in (alphas, betas):
        # The ends, which high and low ask for, are drawn about as often as any other place.
        assert all(10 <= prices.count(end) <= 45 for end in (0.0, 0.3))
    # Drawn apart: a dear turn goes with a cheap search as often as with a dear one.
    assert any(alpha > 0.25 and beta < 0.05 for alpha, beta in zip(alphas, betas, strict=True))


def test_prices_follow_from_the_seed_alone() -> None:
    assert draw_prices(0.3, 7) == draw_prices(0.3, 7) != draw_prices(0.3, 8)
    assert draw_prices(0.0, 7) is None


def test_without_a_dial_or_an_effort_no_prices_are_told() -> None:
    assert effort_of(RewardConfig()) is None
    assert effort_of(RewardConfig(alpha=0.1, beta=0.1)) is None


def test_a_team_with_a_dial_works_at_medium_unless_told_otherwise() -> None:
    assert effort_of(RewardConfig(dial=0.4)) == Effort(0.2, 0.2)
    assert effort_of(RewardConfig(dial=0.4, effort=1.0)) == Effort(0.0, 0.0)


def test_an_effort_without_a_dial_means_the_usual_one() -> None:
    assert effort_of(RewardConfig(effort=0.0)) == Effort(USUAL_DIAL, USUAL_DIAL)


@pytest.mark.parametrize("wish", ["lots", "1.5", "-1", "nan", "[1]", "''"])
def test_an_effort_that_is_none_is_refused_by_name(wish: str) -> None:
    with pytest.raises(ConfigError, match=r"reward\.effort: choose low, medium, high, or a number from 0"):
        load_config(None, [f"reward.effort={wish}"])


def test_an_effort_survives_writing_and_reading(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = Config.model_validate({"reward": {"effort": "low", "dial": 0.3}})
    path = tmp_path_factory.mktemp("config") / "run.toml"
    path.write_text(dump_config(config))
    assert load_config(path) == config
    assert Config.model_validate(Config().model_dump()) == Config()


@pytest.mark.parametrize("effort", [None, Effort(0.2, 0.2)])
async def test_a_planner_for_prices_speaks_where_prices_are_told(effort: Effort | None) -> None:
    """And nobody else does otherwise for it."""
    usual, priced = script(), script()
    own = crew(usual)
    cast = replace(own.cast, by_role={"P": ScriptedBackbone(priced)}, only_priced=frozenset({"P"}))
    await solve(ROOT_QUESTION, replace(own, cast=cast), effort=effort)
    assert bool(priced.prompts) == (effort is not None)
    assert {prompt.role for prompt in priced.prompts} <= {"P"}
    assert bool(usual.put_to("P")) == (effort is None)
    assert usual.put_to("AG")


def test_where_nothing_is_told_unasked_an_effort_still_has_its_price() -> None:
    silent = RewardConfig(dial=0.6, untold=True)
    assert effort_of(silent) is None
    assert effort_of(silent.model_copy(update={"effort": 0.0})) == Effort(0.6, 0.6)
    assert effort_of(RewardConfig(dial=0.6)) == Effort(0.3, 0.3)
