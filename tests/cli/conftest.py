"""An index of a few documents, a scripted model behind a real server, and a folder to work in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from answering_server import Server, serving, write_documents
from cli_runs import jade


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the four documents, made by `jade index`."""
    folder = tmp_path_factory.mktemp("shared")
    done = jade("index", write_documents(folder / "docs"), "--out", folder / "index")
    assert (done.status, done.out) == (0, ""), done.err
    assert "4 files read" in done.err
    return folder / "index"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything runs in a folder of its own, without what the caller's shell says about screens and keys."""
    for name in ("COLUMNS", "FORCE_COLOR", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
