from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from learn_runs import make_config, make_run, small_world

from jade.learn.monitor import known
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.known import known_remark

DEV = [{"iteration": 0, "outcome": 0.4, "outcome/nq": 0.4, "outcome/popqa": 0.5, "outcome/musique": 0.1}]


def rows_of(*outcomes: float, more: float = 0.0) -> list[dict[str, float]]:
    """Iterations of two datasets, popqa better by so much."""
    return [
        {"iteration": number, "outcome": 0.9, "outcome/nq": each, "outcome/popqa": each + more}
        for number, each in enumerate(outcomes, start=1)
    ]


def test_questions_answered_far_better_than_those_of_dev_are_known() -> None:
    text = known_remark(rows_of(*[0.6] * 5, more=0.2), DEV)
    # What dev alone has, and all together, say nothing: 0.7 is the mean of nq and popqa, 0.45 that of dev.
    assert text is not None
    assert text.startswith(
        "the questions seem to be known: 0.70 F1 on those of training (nq, popqa), 0.45 on those of dev"
    )
    assert "learn.part" in text


@pytest.mark.parametrize("outcome", [0.5, 0.2])
def test_a_little_better_or_worse_is_not_known(outcome: float) -> None:
    assert known_remark(rows_of(*[outcome] * 5), DEV) is None


def test_who_learns_fast_has_not_known() -> None:
    assert known_remark(rows_of(0.46, 0.55, 0.7, 0.8, 0.9), DEV) is None
    assert known_remark(rows_of(0.6, 0.65, 0.7, 0.8, 0.9), DEV) is not None


def test_too_few_iterations_no_dev_or_no_dataset_in_both_say_nothing() -> None:
    assert known_remark(rows_of(*[0.9] * 4), DEV) is None
    assert known_remark(rows_of(*[0.9] * 5), []) is None
    assert known_remark(rows_of(*[0.9] * 5), [{"iteration": 0, "outcome": 0.1, "outcome/musique": 0.1}]) is None


def test_one_dataset_of_each_is_compared_as_a_whole() -> None:
    rows = [{"iteration": number, "outcome": 0.9} for number in range(1, 6)]
    text = known_remark(rows, [{"iteration": 0, "outcome": 0.1}])
    assert text is not None
    assert "0.90 F1 on those of training, 0.10 on those of dev" in text
    assert known_remark(rows, DEV) is None, "of several datasets it is not known which is meant"


def test_later_iterations_do_not_count() -> None:
    assert known_remark(rows_of(*[0.45] * 5, *[0.9] * 20), DEV) is None


@pytest.mark.parametrize("kept", [(0, 2), (0,)])
async def test_a_run_on_questions_that_are_known_says_so_once_and_a_resumed_one_the_same(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: tuple[int, ...]
) -> None:
    monkeypatch.setattr(known, "FIRST", 2)
    monkeypatch.setattr(known, "KNOWN", -2.0)  # so that everything is known
    config = make_config(tiny_model, {"learn": {"iterations": 4, "checkpoint_every": 2, "dev_every": 9, "keep": 9}})
    dev = small_world().splits["dev"][:2]
    await make_run(config, tmp_path / "whole", dev=dev).train()
    said = list(read_journal(tmp_path / "whole", "mind"))
    assert [(row["iteration"], row["event"]) for row in said] == [(2, "known")]
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed", dev=dev)
    for place in set(killed.checkpoints.all()) - {killed.checkpoints.place(number) for number in kept}:
        shutil.rmtree(place)
    await killed.train()
    assert list(read_journal(tmp_path / "killed", "mind")) == said
