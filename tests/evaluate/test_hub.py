"""The hub, with a folder of files behind a real HTTP server standing in for it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from jade.errors import DocumentError
from jade.evaluate.benchmarks import read_questions
from jade.evaluate.hub import fetch

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


class Repository(BaseHTTPRequestHandler):
    """Serves `datasets/<owner>/<name>/resolve/main/<path>` the way the hub does, from `folder`."""

    folder: Path

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        owner, _, path = self.path.removeprefix("/datasets/").partition("/resolve/main/")
        file = self.folder / path
        if owner != "someone/sets":
            self._refuse("RepoNotFound")
        elif not file.is_file():
            self._refuse("EntryNotFound")
        else:
            body = file.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    def _refuse(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture
def hub_address(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "repository"
    (folder / "hotpotqa").mkdir(parents=True)
    row = {"id": "q1", "question": "Who?", "golden_answers": ["Ada"]}
    (folder / "hotpotqa" / "dev.jsonl").write_text(json.dumps(row) + "\n")
    handler = type("Served", (Repository,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def load(benchmark: str, data: str, address: str, cache: Path, *, offline: bool = False) -> str:
    settings = {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_OFFLINE": str(int(offline))}
    environment = {**os.environ, **settings}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, benchmark, data], env=environment, capture_output=True, text=True, timeout=60
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
