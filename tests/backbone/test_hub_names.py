"""A Hugging Face name, with a folder behind a real HTTP server standing in for the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jade.learn.tiny import TinySize, make_tiny_model
from loopback import Handler, listening

pytest.importorskip("huggingface_hub")
COMMIT = "0" * 40
SPEAK = """
import asyncio, json, sys
from jade.backbone.open import open_backbone
from jade.backbone.weights import resolve_weights
from jade.config import BackboneConfig
from jade.errors import JadeError
from jade.types import Prompt, Sampling

async def speak(name):
    backbone = open_backbone(BackboneConfig(model=name, inline=True))
    said = await backbone.generate(Prompt("AG", "Answer.", "Which river?"), Sampling(max_tokens=5))
    await backbone.close()
    return list(said.token_ids)

try:
    folder = resolve_weights(sys.argv[1])
    ids = [asyncio.run(speak(name)) for name in sys.argv[1:]]
    print(json.dumps({"files": sorted(p.name for p in folder.iterdir()), "ids": ids}))
except JadeError as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
"""


class Hub(Handler):
    """One repository, `someone/tiny`: the list of its files, and each of them."""

    folder: Path

    def do_HEAD(self) -> None:
        files = sorted(self.folder.iterdir())
        if self.path.split("?")[0] == "/api/models/someone/tiny/revision/main":
            names = [{"rfilename": path.name} for path in files]
            body = json.dumps({"id": "someone/tiny", "sha": COMMIT, "siblings": names}).encode()
        elif self.path.startswith("/api/models/someone/tiny/tree/"):
            sizes = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": f.name} for f in files]
            body = json.dumps(sizes).encode()
        elif self.path.startswith(f"/someone/tiny/resolve/{COMMIT}/"):
            body = (self.folder / self.path.rpartition("/")[2]).read_bytes()
        else:
            self.answer(404, headers={"X-Error-Code": "RepoNotFound"})
            return
        etag = f'"{self.path.rpartition("/")[2]}"'
        self.answer(200, body, {"ETag": etag, "X-Repo-Commit": COMMIT, "Content-Type": "application/json"})

    do_GET = do_HEAD


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as it lies on a hub, with pickled weights and code beside the safetensors."""
    size = TinySize(vocabulary=300, width=32, layers=1)
    made = make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", ("The Len is a river.",), size)
    (made / "pytorch_model.bin").write_bytes(b"pickle")
    (made / "modeling_evil.py").write_text("raise SystemExit('code of a stranger was run')")
    return made


@pytest.fixture
def hub(folder: Path) -> Iterator[str]:
    with listening(type("TinyHub", (Hub,), {"folder": folder})) as address:
        yield address


def speak(hub: str, home: Path, *names: str) -> dict[str, Any]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment = {**kept, "HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, *names], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_a_name_on_the_hub_works_as_its_folder_does(folder: Path, hub: str, tmp_path: Path) -> None:
    said = speak(hub, tmp_path, "someone/tiny", str(folder))
    assert said.get("error") is None, said
    by_name, by_folder = said["ids"]
    assert by_name == by_folder != []
    assert "model.safetensors" in said["files"]
    assert not {"pytorch_model.bin", "modeling_evil.py"} & set(said["files"])


def test_a_name_that_the_hub_does_not_know_is_one_line(hub: str, tmp_path: Path) -> None:
    said = speak(hub, tmp_path, "someone/nothing")["error"]
    assert said.startswith("WeightsMissing: model 'someone/nothing' cannot be had from the hub")
    assert "\n" not in said
