"""The same global batch gives the same loss and the same gradient norm, however many processes share it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest
from learn_builders import make_transition
from sharded_update import SETTINGS, Figures, take_part, update

from jade.learn.batches import plan_shares


def updates_of(num_ranks: int, model: Path, folder: Path) -> list[dict[str, Figures]]:
    """What each of several processes reports. They come from one that has loaded torch; one that dies ends them all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["jade.cluster.torchrun"])
    with ProcessPoolExecutor(num_ranks, context) as group:
        return list(group.map(take_part, range(num_ranks), repeat(num_ranks), repeat(model), repeat(folder)))


@pytest.fixture(scope="module")
def alone(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    folder = tmp_path_factory.mktemp("alone")
    return {name: update(tiny_model, settings, folder / name) for name, settings in SETTINGS.items()}


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_several_processes_learn_what_one_does(
    tiny_model: Path, tmp_path: Path, alone: dict[str, Figures], num_ranks: int
) -> None:
    reports = updates_of(num_ranks, tiny_model, tmp_path)
    assert len(reports) == num_ranks
    for report in reports:
        for name, figures in report.items():
            assert comparable(figures) == pytest.approx(comparable(alone[name]), rel=1e-4, abs=1e-6), name


def comparable(figures: Figures) -> Figures:
    """Without what a clock says, and the share of tokens that calls of one batch have in common."""
    return {name: value for name, value in figures.items() if "seconds" not in name and name != "shared"}


def test_every_process_has_as_many_batches_and_every_call_is_in_one() -> None:
    calls = [make_transition(num_tokens=1 + n % 7) for n in range(23)]
    plans = plan_shares(calls, 64, 4)
    assert len({len(plan) for plan in plans}) == 1
    assert sorted(row for plan in plans for batch in plan for row in batch) == list(range(23))


def test_a_process_with_nothing_to_do_has_empty_batches() -> None:
    assert plan_shares([make_transition()], 64, 3) == [[(0,)], [()], [()]]
