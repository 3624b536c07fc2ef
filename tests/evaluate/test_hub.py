"""The hub, with a folder of files behind a real HTTP server standing in for it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jade.errors import DocumentError
from jade.evaluate.benchmarks import read_questions
from jade.evaluate.hub import fetch
from loopback import Handler, listening
from patience import PATIENCE_SECONDS

pytest.importorskip("huggingface_hub")

LOAD = """
import sys
from jade.errors import JadeError
from jade.evaluate.benchmarks import load_questions
try:
    print([question.id for question in load_questions(sys.argv[1], sys.argv[2])])
except JadeError as error:
    print(f"{type(error).__name__}: {error}")
"""


class Repository(Handler):
    """Serves `datasets/<owner>/<name>/resolve/main/<path>` the way the hub does, from `folder`."""

    folder: Path

    def do_HEAD(self) -> None:
        owner, _, path = self.path.removeprefix("/datasets/").partition("/resolve/main/")
        file = self.folder / path
        if owner != "someone/sets" or not file.is_file():
            what = "Repo" if owner != "someone/sets" else "Entry"
            self.answer(404, headers={"X-Error-Code": f"{what}NotFound"})
        else:
            etag = f'"{hashlib.sha256(file.read_bytes()).hexdigest()}"'
            self.answer(200, file.read_bytes(), {"ETag": etag, "X-Repo-Commit": "0" * 40})

    do_GET = do_HEAD


@pytest.fixture
def hub_address(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "repository"
    (folder / "hotpotqa").mkdir(parents=True)
    row = {"id": "q1", "question": "Who?", "golden_answers": ["Ada"]}
    (folder / "hotpotqa" / "dev.jsonl").write_text(json.dumps(row) + "\n")
    with listening(type("Served", (Repository,), {"folder": folder})) as address:
        yield address


def load(benchmark: str, data: str, address: str, cache: Path, *, offline: bool = False) -> str:
    settings = {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_OFFLINE": str(int(offline))}
    environment = {**os.environ, **settings}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, benchmark, data],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_benchmark_comes_from_the_hub_by_name(hub_address: str, tmp_path: Path) -> None:
    assert load("hotpotqa", "hub:someone/sets", hub_address, tmp_path / "cache") == "['q1']"


def test_the_first_candidate_that_is_there_is_taken(hub_address: str, tmp_path: Path) -> None:
    candidates = ["hotpotqa/test.jsonl", "hotpotqa/dev.jsonl"]
    path = fetch("someone/sets", candidates, endpoint=hub_address, cache=tmp_path / "cache")
    assert [question.id for question in read_questions(path, "hotpotqa")] == ["q1"]


@pytest.mark.parametrize(
    ("repository", "complaint"),
    [
        ("someone/sets", "dataset repository 'someone/sets' has none of nq/test.jsonl"),
        ("nobody/sets", "the hub has no dataset repository 'nobody/sets' (or it is private)"),
        ("not a name", "cannot reach 'not a name' on the hub (Repo id must"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(
    hub_address: str, tmp_path: Path, repository: str, complaint: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        fetch(repository, ["nq/test.jsonl"], endpoint=hub_address, cache=tmp_path / "cache")
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_without_a_network_one_line_says_to_give_a_folder(tmp_path: Path) -> None:
    answer = load("nq", "hub:", "http://127.0.0.1:9", tmp_path / "cache", offline=True)
    assert answer.startswith("DocumentError: cannot reach 'RUC-NLPIR/FlashRAG_datasets' on the hub")
    assert answer.endswith("download it and give the folder instead")
    assert "\n" not in answer
