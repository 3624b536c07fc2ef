"""A tiny model that the tests of learning share."""

from __future__ import annotations

from pathlib import Path

import pytest

from jade.learn.tiny import TinySize, make_tiny_model

TEXT = "Who wrote the book? <answer>Ada Lane</answer> <workflow>QR,R,DS,AG</workflow> <id>Document0</id> <query>"


def make_shared_model(folder: Path) -> Path:
    size = TinySize(vocabulary=320, width=32, layers=2, heads=4, key_value_heads=2, positions=512)
    return make_tiny_model(folder, [TEXT] * 20, size)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shared_model(tmp_path_factory.mktemp("tiny"))
