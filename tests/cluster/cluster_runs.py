"""Builders of whole runs that can be started in other processes: all they need is on the disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from learn_runs import make_config, merge

from jade.api.documents import index_documents
from jade.config import Config
from jade.corpus.world import make_world, write_world
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run

TEAM, CREDIT = "terse_team.py", "mortal_credit.py"
HUGE = 10**12


def write_material(folder: Path) -> Path:
    """A small world with its pages indexed, and code of one's own for the team and for its credit."""
    for name in (TEAM, CREDIT):
        shutil.copy(Path(__file__).with_name(name), folder / name)
    write_world(make_world(50, 40, 0), folder / "world")
    index_documents([folder / "world" / "pages"], folder / "index")
    return folder


def make_cluster_config(tiny_model: Path, material: Path, settings: Mapping[str, Any] | None = None) -> Config:
    """Three iterations of four questions each; one thread, so that every process computes as every other does."""
    base = {
        "backbone": {"threads": 1},
        "retrieval": {"index": str(material / "index"), "inline": True, "k": 1},
        "budget": {"rounds": 2, "calls": 3},
        "cluster": {"patience_minutes": 30},
        "team": {"extensions": [str(material / TEAM)]},
        "learn": {
            "questions": [str(material / "world" / "questions.train.jsonl")],
            "iterations": 3,
            "questions_per_iteration": 4,
            "credit": {"rule": f"{material / CREDIT}:trajectory"},
        },
    }
    return make_config(tiny_model, merge(base, settings or {}))


def with_huge_model(config: Config, folder: Path) -> Config:
    """A model folder whose weights file says that it holds a trillion numbers; nothing of it is on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    head = json.dumps({"w": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + 4 * HUGE)
    return config.model_copy(update={"backbone": config.backbone.model_copy(update={"model": str(folder)})})


async def train_here(config: Config, folder: Path) -> None:
    async with open_run(config, folder, Silent()) as run:
        await run.train()


def numbers(folder: Path) -> list[dict[str, Any]]:
    """The figures of the journal, without what a clock says."""
    return [{k: v for k, v in row.items() if k != "kind" and "seconds" not in k} for row in read_journal(folder)]


def same_within_rounding(one: Path, other: Path) -> bool:
    """Whether two runs tell the same story: the order of sums may differ, and nothing else."""
    rows = zip(map(comparable, numbers(one)), map(comparable, numbers(other)), strict=True)
    return all(mine == pytest.approx(theirs, rel=1e-4, abs=1e-5) for mine, theirs in rows)


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Without the share of tokens that calls in one batch have in common: it depends on which calls these are."""
    return {name: value for name, value in row.items() if name != "shared"}
