"""`jade index` and `jade retrieve-server` as a user runs them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from jade.cli import index as index_verb
from jade.cli import retrieve_server
from jade.config import RetrievalConfig, ServeConfig
from jade.engine.budget import Account
from jade.engine.case import Case
from jade.engine.record import append_traces
from jade.errors import ConfigError, DocumentError, IndexUnusable
from jade.retrieval.index import open_index
from jade.retrieval.open import open_retriever
from jade.serve.listen import open_socket
from jade.types import Passage, Question
from patience import PATIENCE_SECONDS, running

APP = typer.Typer()
APP.command("index")(index_verb.command)
APP.command("retrieve-server")(retrieve_server.command)


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(APP, ["index", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "town.md").write_text("# Ashford\n\nAshford is a town. It lies on the Len.\n")
    (folder / "page.html").write_text("<title>Len</title><script>alert('x')</script><p>The Len is a river.</p>")
    (folder / "rows.jsonl").write_text('{"id": "r1", "contents": "\\"Mill\\"\\nThe mill burned."}\n{broken\n')
    (folder / "junk.txt").write_bytes(b"\0\1\2")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    return folder


async def search(folder: Path, query: str) -> list[Passage]:
    retriever = open_retriever(RetrievalConfig(index=str(folder)))
    try:
        return (await retriever.search([query], 3))[0]
    finally:
        await retriever.close()


async def test_a_folder_of_documents_becomes_an_index_that_points_back_at_them(docs: Path, tmp_path: Path) -> None:
    output = run(docs, "--out", tmp_path / "index")
    assert "is ready: 3 documents, 3 passages" in output
    assert "4 files read, 0 unchanged, 0 removed" in output
    assert "2 could not be read:" in output
    assert "1 files of other kinds were passed over" in output
    assert "  junk.txt is not text" in output
    assert "  rows.jsonl:line 2 is not JSON" in output
    assert "alert" not in str(await search(tmp_path / "index", "alert river"))
    best = (await search(tmp_path / "index", "where does Ashford lie"))[0]
    assert (best.id, best.title, best.source) == ("town.md#1", "Ashford", "town.md:chars 11-49")
    start, end = 11, 49
    assert (docs / "town.md").read_text()[start:end] == best.text


async def test_running_it_again_reads_only_what_changed(docs: Path, tmp_path: Path) -> None:
    run(docs, "--out", tmp_path / "index")
    again = run(docs, "--out", tmp_path / "index")
    assert "was up to date" in again
    assert "0 files read, 4 unchanged" in again
    assert "junk.txt is not text" in again
    (docs / "page.html").unlink()
    (docs / "town.md").write_text("# Ashford\n\nAshford was a village.\n")
    assert "1 files read, 2 unchanged, 1 removed" in run(docs, "--out", tmp_path / "index")
    assert [passage.text for passage in await search(tmp_path / "index", "Ashford river")] == ["Ashford was a village."]
    assert "3 files read" in run(docs, "--out", tmp_path / "index", "--fresh")
    assert "3 files read" in run(docs, "--out", tmp_path / "index", "--words", "50")


def test_an_index_inside_the_folder_is_not_indexed(docs: Path) -> None:
    run(docs, "--out", docs / "index")
    assert "was up to date: 3 documents" in run(docs, "--out", docs / "index")


def test_what_jade_itself_has_written_among_the_documents_is_passed_over(docs: Path, tmp_path: Path) -> None:
    """An index of before, traces of what was asked: each time they would be listed as unreadable."""
    before = run(docs, "--out", tmp_path / "index").splitlines()[-4:]
    run(docs, "--out", docs / "old", "--words", "10")
    case = Case(Question("q", "Where?"))
    append_traces(docs / "traces.jsonl", [case.close(Account(), (case.root,), (), "there")])
    ours = sum(path.is_file() and path.name != ".lock" for path in (docs / "old").rglob("*")) + 1
    after = run(docs, "--out", tmp_path / "other").splitlines()[-4:]
    assert after == [line.replace("1 files of other", f"{1 + ours} files of other") for line in before]
    (docs / "own.jsonl").write_text('{"schema":1,"id":"x","text":"A row of somebody\'s own."}\n')
    assert "is ready: 4 documents" in run(docs, "--out", tmp_path / "other")


def test_words_and_overlap_shape_the_passages(docs: Path, tmp_path: Path) -> None:
    (docs / "long.txt").write_text(" ".join(f"Sentence {number} has five words." for number in range(50)))
    run(docs / "long.txt", "--out", tmp_path / "index", "--words", "10", "--overlap", "5")
    index = open_index(tmp_path / "index")
    texts = [passage.text for passage in index.passages]
    index.close()
    assert len(texts) == 49
    assert texts[1] == "Sentence 1 has five words. Sentence 2 has five words."


def test_text_that_looks_like_markup_is_printed_as_it_is(docs: Path, tmp_path: Path) -> None:
    (docs / "[bold]x.txt").write_bytes(b"\0")
    assert "  [bold]x.txt is not text" in run(docs, "--out", tmp_path / "index")


def test_a_long_list_of_unreadable_files_is_cut_unless_asked(docs: Path, tmp_path: Path) -> None:
    for number in range(40):
        (docs / f"junk{number}.txt").write_bytes(b"\0")
    short, whole = run(docs, "--out", tmp_path / "i"), run(docs, "--out", tmp_path / "i", "--list-all")
    assert "and 12 more (--list-all)" in short
    assert whole.count("is not text") == 41


def test_repeated_ids_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "text": "one"}\n{"id": 1, "text": "two"}\n')
    assert "1 passages had an id that another already had" in run(tmp_path / "a.jsonl", "--out", tmp_path / "i")


def test_a_file_that_is_too_large_is_passed_over(docs: Path, tmp_path: Path) -> None:
    (docs / "huge.txt").write_text("many words " * 2000)
    output = run(docs, "--out", tmp_path / "index", "--max-megabytes", "0.01")
    assert "huge.txt is larger than the limit of 0.01 MB" in output


def test_verify_reads_every_byte(docs: Path, tmp_path: Path) -> None:
    run(docs, "--out", tmp_path / "index")
    assert "files are as written; 3 passages" in run("--out", tmp_path / "index", "--verify")
    next((tmp_path / "index").glob("data-*/passages.jsonl")).write_bytes(b"x")
    with pytest.raises(IndexUnusable, match=r"passages\.jsonl has 1 bytes"):
        run("--out", tmp_path / "index", "--verify")


def test_nothing_to_index_says_what_can_be_read(docs: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DocumentError, match=r"nothing to index in .*empty \(no files\); JADE reads \.txt"):
        run(empty, "--out", tmp_path / "index")
    (empty / "a.png").touch()
    with pytest.raises(DocumentError, match="1 files of other kinds"):
        run(empty, "--out", tmp_path / "index")
    (empty / "link.txt").symlink_to(docs / "town.md")
    with pytest.raises(DocumentError, match=r"link\.txt is a link that leaves the folder"):
        run(empty, "--out", tmp_path / "index")
    with pytest.raises(ConfigError, match="name a file or a folder"):
        run("--out", tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_dense_index_stays_dense_until_told_otherwise(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import faiss
    from retrieval_builders import StandInEncoder

    encoder = StandInEncoder()
    monkeypatch.setattr("jade.retrieval.build.Encoder", lambda spec, device: encoder)

    def parts(*options: str | Path) -> dict[str, Any]:
        run(docs, "--out", tmp_path / "index", *options)
        manifest: dict[str, dict[str, Any]] = json.loads((tmp_path / "index" / "manifest.json").read_text())
        return manifest["parts"]

    assert parts("--dense")["dense"]["name"] == "minilm"
    (docs / "new.txt").write_text("New.")
    assert "dense" in parts()
    assert encoder.encoded[-1] == "new\nNew."
    assert "dense" not in parts("--no-dense")
    (docs / "rows.jsonl").write_text(json.dumps({"id": "long", "text": "One word more. " * 300}) + "\n")
    vectors = faiss.IndexFlatIP(26)
    vectors.add(encoder.queries(["a"] * 4))
    faiss.write_index(vectors, str(tmp_path / "v.index"))
    brought = parts("--faiss", tmp_path / "v.index", "--encoder", "e5-base-v2")["dense"]
    assert (brought["imported"], brought["query_prefix"]) == (True, "query: ")
    assert "was up to date" in run(docs, "--out", tmp_path / "index")


def test_the_verbs_import_nothing_heavy() -> None:
    heavy = {"numpy", "torch", "bm25s", "numba", "fastapi", "faiss", "pypdf", "httpx"}
    check = f"import sys, jade.cli.index, jade.cli.retrieve_server; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout.strip() == "[]"


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`jade retrieve-server` in a process of its own, on a port it chose itself."""
    start = "import typer; from jade.cli.retrieve_server import command; typer.run(command)"
    command = [sys.executable, "-c", start, "--index", folder, "--port", "0"]
    with running(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        yield next(line.split("running on ")[1].split()[0] for line in lines if "running on " in line)
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (0, "")


def test_the_server_serves_an_index_over_http(docs: Path, tmp_path: Path) -> None:
    run(docs, "--out", tmp_path / "index")
    with server(tmp_path / "index") as url:
        found = httpx.post(f"{url}/retrieve", json={"queries": ["mill"], "topk": 1}).json()["result"][0]
        about = httpx.get(f"{url}/health").json()
        foreign = httpx.get(f"{url}/health", headers={"Host": "evil.example"})
    assert foreign.status_code == 421
    assert [document["id"] for document in found] == ["r1"]
    assert about["status"] == "ok"


def test_the_server_does_not_start_without_an_index(tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, ["retrieve-server", "--index", str(tmp_path / "none")])
    assert isinstance(result.exception, IndexUnusable)
    result = CliRunner().invoke(APP, ["retrieve-server"])
    assert isinstance(result.exception, ConfigError)


def test_a_port_that_is_taken_is_one_clear_line(docs: Path, tmp_path: Path) -> None:
    run(docs, "--out", tmp_path / "index")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(APP, ["retrieve-server", "--index", str(tmp_path / "index"), "--port", str(port)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port"
    )


def test_the_server_listens_as_tcp_so_that_small_answers_are_not_held_back() -> None:
    """asyncio switches Nagle's algorithm off only on sockets that say what they are."""
    with open_socket(ServeConfig(port=0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_file_name_cannot_give_orders_to_the_terminal(docs: Path, tmp_path: Path) -> None:
    (docs / "a\x1b[2J\x1b]0;owned\x07[red]\nb\u202e.txt").write_bytes(b"\0\0")
    said = run(docs, "--out", tmp_path / "index")
    assert "a\ufffd[2J\ufffd]0;owned\ufffd[red]" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
