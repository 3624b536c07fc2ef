"""What the tests of clusters share: a tiny model, material for runs, and one run in this process to compare with."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from jade.config import Config

sys.path.append(str(Path(__file__).parent.parent / "learn"))

from cluster_runs import make_cluster_config, train_here, write_material
from learn_runs import make_shared_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shared_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_material(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="session")
def config(tiny_model: Path, material: Path) -> Config:
    return make_cluster_config(tiny_model, material)


@pytest.fixture(scope="session")
def here(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in this process, with which all others are compared."""
    folder = tmp_path_factory.mktemp("here")
    asyncio.run(train_here(config, folder))
    return folder
