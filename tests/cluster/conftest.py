"""A tiny model that the tests of clusters share, and the builders of the tests of learning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jade.learn.tiny import TinySize, make_tiny_model

sys.path.append(str(Path(__file__).parent.parent / "learn"))

TEXT = "Who wrote the book? <answer>Ada Lane</answer> <workflow>QR,R,DS,AG</workflow> <id>Document0</id> <query>"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = TinySize(vocabulary=320, width=32, layers=2, heads=4, key_value_heads=2, positions=512)
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), [TEXT] * 20, size)
