"""A tiny model that the tests of learning share."""

from __future__ import annotations

from pathlib import Path

import pytest
from learn_runs import make_shared_model

from jade.retrieval.build import build_index
from jade.types import Passage


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shared_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, so that a config is sound in this; what it holds is one passage."""
    folder = tmp_path_factory.mktemp("index")
    build_index(
        folder, {"one": "1"}, lambda name: [[Passage("one", "Emma", "Emma is a novel.")]], settings={}, fresh=True
    )
    return folder
