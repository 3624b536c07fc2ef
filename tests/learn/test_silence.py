from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_runs import make_config, make_run

from jade.config import LearnConfig
from jade.learn.monitor import silence
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.silence import newly_silent, silent_roles

COOL = LearnConfig(temperature=0.7)


def rows_of(tokens: float = 1000.0, **entropies: list[float]) -> list[dict[str, float]]:
    """A run's iterations, by what its roles' entropies were and how much each said."""
    length = max(map(len, entropies.values()))
    return [
        {"iteration": i + 1.0}
        | {f"entropy/{role}": each[i] for role, each in entropies.items() if i < len(each)}
        | {f"tokens/{role}": tokens for role, each in entropies.items() if i < len(each)}
        for i in range(length)
    ]


def test_a_role_whose_entropy_fell_below_a_fifth_is_silent_and_one_at_a_third_is_not() -> None:
    found = silent_roles(rows_of(DS=[0.16] * 5 + [0.08, 0.04] + [0.02] * 5, AG=[0.15] * 5 + [0.05] * 7))
    assert list(found) == ["DS"]
    assert found["DS"] == pytest.approx((0.16, 0.02))


def test_a_few_iterations_tell_nothing_nor_do_a_few_words() -> None:
    assert silent_roles(rows_of(DS=[0.16] * 5 + [0.001] * 4)) == {}
    assert silent_roles(rows_of(300.0, DS=[0.16] * 5 + [0.001] * 5)) == {}


def test_an_iteration_counts_by_what_was_said_in_it() -> None:
    rows = rows_of(DS=[0.16] * 5 + [0.02] * 5)
    rows[-1] |= {"entropy/DS": 0.9, "tokens/DS": 10.0}
    assert list(silent_roles(rows)) == ["DS"]
    rows[-1] |= {"tokens/DS": 1000.0}
    assert silent_roles(rows) == {}


def test_a_role_is_named_when_it_falls_silent_with_what_may_help_and_not_again() -> None:
    rows = rows_of(DS=[0.16] * 10 + [0.003] * 20)
    assert newly_silent(rows[:15], 10, COOL) == [
        "DS tries little any more: 0.003 nats a token, 0.160 at first; what is not tried is not learned: "
        "learn.role_temperature.DS = 1 and learn.ppo.role_entropy.DS may help"
    ]
    assert newly_silent(rows[:20], 15, COOL) == []


def test_what_is_set_already_is_not_advised() -> None:
    rows = rows_of(DS=[0.16] * 5 + [0.003] * 5)
    tries = LearnConfig.model_validate({"role_temperature": {"DS": 1.0}, "ppo": {"role_entropy": {"DS": 0.1}}})
    assert newly_silent(rows, 5, tries) == ["DS tries little any more: 0.003 nats a token, 0.160 at first"]
    (text,) = newly_silent(rows, 5, LearnConfig(temperature=1.0))
    assert text.endswith("not learned: learn.ppo.role_entropy.DS may help")


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40), st.integers(1, 7))
def test_looked_at_every_few_iterations_a_role_is_named_when_silence_begins(entropies: list[float], every: int) -> None:
    rows = rows_of(DS=entropies)
    was_silent = False
    for number in range(every, len(rows) + 1, every):
        is_silent = "DS" in silent_roles(rows[:number])
        assert bool(newly_silent(rows[:number], number - every, COOL)) == (is_silent and not was_silent)
        was_silent = is_silent


@pytest.mark.parametrize(("iterations", "said_at"), [(4, 2), (3, 2), (2, 2)])
async def test_a_resumed_run_says_what_the_whole_one_says(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iterations: int, said_at: int
) -> None:
    monkeypatch.setattr(silence, "WINDOW", 1)
    monkeypatch.setattr(silence, "FEW_TOKENS", 1)
    monkeypatch.setattr(silence, "SILENT", 10.0)  # so that every role is silent as soon as there is anything to compare
    config = make_config(tiny_model, {"learn": {"iterations": iterations, "checkpoint_every": 2}})
    await make_run(config, tmp_path / "whole").train()
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed")
    shutil.rmtree(killed.checkpoints.place(iterations))
    await killed.train()
    said, again = (list(read_journal(tmp_path / name, "mind")) for name in ("whole", "killed"))
    assert {row["iteration"] for row in said} == {said_at}
    assert {row["event"] for row in said} == {"silence"}
    assert said == again


async def test_the_end_of_a_run_is_looked_at_as_well(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "WINDOW", 1)
    monkeypatch.setattr(silence, "FEW_TOKENS", 1)
    monkeypatch.setattr(silence, "SILENT", 10.0)
    await make_run(make_config(tiny_model, {"learn": {"iterations": 3, "checkpoint_every": 9}}), tmp_path).train()
    assert {row["iteration"] for row in read_journal(tmp_path, "mind")} == {3}
