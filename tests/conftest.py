"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder of real benchmark questions and corpora; tests that want it skip where it is absent."""
    folder = Path(os.environ.get("JADE_BENCHMARK_DATA", "../shared/data")).resolve()
    if not (folder / "corpus_main.jsonl.gz").is_file():
        pytest.skip(f"no benchmark data in {folder}; set JADE_BENCHMARK_DATA to its folder")
    return folder
