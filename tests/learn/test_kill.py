"""A run killed with SIGKILL at random moments and resumed equals one that was not, number for number."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from learn_runs import make_config

from jade.cli.index import index_documents
from jade.config import dump_config, load_config
from jade.corpus.world import make_world, write_world
from jade.learn.journal import read_journal
from jade.learn.open import open_run
from jade.learn.show import Silent

NUM_KILLS = 2
PATIENCE_SECONDS = 120


@pytest.fixture
def config_file(tiny_model: Path, tmp_path: Path) -> Path:
    """Five iterations over an indexed world, with a checkpoint after every second one and a measurement on the way."""
    world = tmp_path / "world"
    write_world(make_world(50, 40, 0), world)
    index_documents([world / "pages"], tmp_path / "index")
    settings: dict[str, Any] = {
        "retrieval": {"index": str(tmp_path / "index"), "inline": True, "k": 1},
        "learn": {
            "questions": [str(world / "questions.train.jsonl")],
            "dev": [str(world / "questions.dev.jsonl")],
            "dev_questions": 1,
            "iterations": 5,
            "checkpoint_every": 2,
            "dev_every": 3,
        },
    }
    path = tmp_path / "run.toml"
    path.write_text(dump_config(make_config(tiny_model, settings)))
    return path


def kill_when(config: Path, folder: Path, num_lines: int, delay: float) -> None:
    """Start the run, wait until its journal has so many lines and a moment longer, and kill it."""
    script = Path(__file__).with_name("kill_me.py")
    process = subprocess.Popen([sys.executable, str(script), str(config), str(folder)])
    deadline = time.monotonic() + PATIENCE_SECONDS
    journal = folder / "metrics.jsonl"
    while process.poll() is None and time.monotonic() < deadline:
        if journal.exists() and journal.read_text().count("\n") >= num_lines:
            break
        time.sleep(0.02)
    time.sleep(delay)
    process.kill()
    process.wait()


def numbers(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in read_journal(folder)]


@pytest.mark.slow
async def test_a_run_killed_at_random_equals_one_that_was_not(config_file: Path, tmp_path: Path) -> None:
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
    for name in ("policy.safetensors", "optimiser.safetensors"):
        one, other = (tmp_path / run / "checkpoints/step-000005" / name for run in ("through", "killed"))
        assert one.read_bytes() == other.read_bytes()
