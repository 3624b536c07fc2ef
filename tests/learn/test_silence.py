from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_runs import make_config, make_run

from jade.learn import silence
from jade.learn.journal import read_journal
from jade.learn.silence import newly_silent, silent_roles


def rows_of(**entropies: list[float]) -> list[dict[str, float]]:
    """A run's iterations, by what its roles' entropies were."""
    length = max(map(len, entropies.values()))
    return [
        {"iteration": i + 1.0} | {f"entropy/{role}": each[i] for role, each in entropies.items() if i < len(each)}
        for i in range(length)
    ]


def test_a_role_whose_entropy_fell_below_an_eighth_is_silent_and_one_at_a_third_is_not() -> None:
    rows = rows_of(DS=[0.16] * 5 + [0.08, 0.04] + [0.01] * 5, AG=[0.15] * 5 + [0.05] * 7)
    found = silent_roles(rows)
    assert list(found) == ["DS"]
    assert found["DS"] == pytest.approx((0.16, 0.01))


def test_a_few_iterations_tell_nothing() -> None:
    assert silent_roles(rows_of(DS=[0.16] * 5 + [0.001] * 4)) == {}


def test_a_role_is_named_when_it_falls_silent_with_what_keeps_it_trying_and_not_again() -> None:
    rows = rows_of(DS=[0.16] * 10 + [0.003] * 20)
    (text,) = newly_silent(rows[:15], since=10).values()
    assert text.startswith("DS hardly tries anything any more: 0.003 nats a token, 0.160 at first.")
    assert "learn.role_temperature.DS" in text
    assert "learn.ppo.role_entropy.DS" in text
    assert newly_silent(rows[:20], since=15) == {}


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40), st.integers(1, 7))
def test_who_is_looked_at_every_few_iterations_is_named_whenever_silence_begins(
    entropies: list[float], every: int
) -> None:
    rows = rows_of(DS=entropies)
    was_silent = False
    for number in range(every, len(rows) + 1, every):
        is_silent = "DS" in silent_roles(rows[:number])
        assert bool(newly_silent(rows[:number], since=number - every)) == (is_silent and not was_silent)
        was_silent = is_silent


async def test_a_resumed_run_says_what_the_whole_one_says(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "WINDOW", 1)
    monkeypatch.setattr(silence, "SILENT", 10.0)  # so that every role is silent as soon as there is anything to compare
    config = make_config(tiny_model, {"learn": {"iterations": 4, "checkpoint_every": 2}})
    await make_run(config, tmp_path / "whole").train()
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed")
    shutil.rmtree(killed.checkpoints.place(4))
    await killed.train()
    said, again = (list(read_journal(tmp_path / name, "mind")) for name in ("whole", "killed"))
    assert {row["iteration"] for row in said} == {2}
    assert {row["event"] for row in said} == {"silence"}
    assert said == again
