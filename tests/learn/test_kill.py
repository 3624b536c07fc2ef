"""A run killed with SIGKILL at random moments and resumed equals one that was not, number for number."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from learn_kills import AHEAD, ITERATIONS, differences, kill_when, numbers, write_run

from jade.config import load_config
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run

NUM_KILLS = 2


@pytest.mark.slow
@pytest.mark.parametrize("learn", [{}, AHEAD], ids=["one after the other", "ahead"])
async def test_a_run_killed_at_random_equals_one_that_was_not(
    tiny_model: Path, tmp_path: Path, learn: dict[str, Any]
) -> None:
    config_file = write_run(tiny_model, tmp_path, learn)
    config = load_config(config_file)
    async with open_run(config, tmp_path / "through", Silent()) as run:
        await run.train()
    chance = random.Random(0)
    for kill in range(NUM_KILLS):
        kill_when(config_file, tmp_path / "killed", 2 + 2 * kill, chance.uniform(0.0, 0.4))
    assert len(numbers(tmp_path / "killed")) <= len(numbers(tmp_path / "through"))
    async with open_run(config, tmp_path / "killed", Silent(), resume=True) as run:
        await run.train()
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "through")
    assert max(differences(tmp_path / "through", tmp_path / "killed")) == 0.0
    for name in ("policy.safetensors", "optimiser.safetensors"):
        one, other = (tmp_path / run / f"checkpoints/step-{ITERATIONS:06d}" / name for run in ("through", "killed"))
        assert one.read_bytes() == other.read_bytes()
