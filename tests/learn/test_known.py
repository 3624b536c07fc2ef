from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from learn_runs import make_config, make_run, small_world

from jade.config import RewardConfig
from jade.learn import known
from jade.learn.figures import rollout_figures
from jade.learn.journal import read_journal
from jade.learn.known import known_datasets, newly_known
from jade.types import Trace

DEV = [{"iteration": 0, "outcome": 0.4, "outcome/nq": 0.4, "outcome/popqa": 0.5, "outcome/musique": 0.1}]


def rows_of(count: int, **outcomes: float) -> list[dict[str, float]]:
    parts = {f"outcome/{name}": value for name, value in outcomes.items()}
    return [{"iteration": number, "outcome": 0.9} | parts for number in range(1, count + 1)]


def test_questions_answered_far_better_than_those_of_dev_are_known() -> None:
    found = known_datasets(rows_of(5, nq=0.6, popqa=0.8), DEV)
    assert found is not None
    names, trained, new = found
    assert names == ["nq", "popqa"], "what dev alone has says nothing"
    assert (trained, new) == pytest.approx((0.7, 0.45))


@pytest.mark.parametrize(
    "rows", [rows_of(5, nq=0.45, popqa=0.55), rows_of(5, nq=0.2, popqa=0.2), rows_of(5, hotpotqa=0.9)]
)
def test_a_little_better_or_worse_or_not_measured_is_not_known(rows: list[dict[str, float]]) -> None:
    assert known_datasets(rows, DEV) is None


def test_without_dev_nothing_is_said() -> None:
    assert newly_known(rows_of(9, nq=0.9), [], 0) == []


def test_only_the_first_iterations_count_for_later_ones_have_learned() -> None:
    rows = [*rows_of(5, nq=0.4), *({"iteration": n, "outcome/nq": 0.9} for n in range(6, 20))]
    assert known_datasets(rows, DEV) is None


@pytest.mark.parametrize("every", [1, 2, 5, 7])
def test_it_is_said_once_at_the_first_look_with_enough_iterations(every: int) -> None:
    rows = rows_of(20, nq=0.9)
    said = [number for number in range(every, 21, every) if newly_known(rows[:number], DEV, number - every)]
    assert said == [next(number for number in range(every, 21, every) if number >= known.FIRST)]


def test_the_remark_names_the_figures_and_the_remedy() -> None:
    (text,) = newly_known(rows_of(5, nq=0.65), DEV, 0)
    assert text.startswith("the questions seem to be known: 0.65 F1 on those of training (nq), 0.40 on those of dev")
    assert "learn.part" in text


def with_a_dataset(traces: Sequence[Trace], cfg: RewardConfig) -> dict[str, float]:
    """As if there were several."""
    figures = rollout_figures(traces, cfg)
    return figures | {"outcome/world": figures["outcome"]}


async def test_a_run_on_questions_that_are_known_says_so_and_says_it_again_when_resumed(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "FIRST", 2)
    monkeypatch.setattr(known, "KNOWN", -2.0)  # so that everything is known
    config = make_config(tiny_model, {"learn": {"iterations": 4, "checkpoint_every": 2, "dev_every": 9}})
    dev = small_world().splits["dev"][:2]
    monkeypatch.setattr("jade.learn.train.rollout_figures", with_a_dataset)
    await make_run(config, tmp_path / "whole", dev=dev).train()
    said = list(read_journal(tmp_path / "whole", "mind"))
    assert [(row["iteration"], row["event"]) for row in said if row["event"] == "known"] == [(2, "known")]
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed", dev=dev)
    shutil.rmtree(killed.checkpoints.place(4))
    await killed.train()
    assert list(read_journal(tmp_path / "killed", "mind")) == said
