"""A tiny model that the tests of learning share."""

from __future__ import annotations

from pathlib import Path

import pytest
from learn_runs import make_shared_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shared_model(tmp_path_factory.mktemp("tiny"))
