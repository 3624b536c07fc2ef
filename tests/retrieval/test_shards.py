"""Shards of a corpus: the ranking of one index, whatever the cut, in one process or in many."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval_builders import TOWNS, EchoRetriever, build, passages
from typer.testing import CliRunner

from jade.cli.main import app
from jade.config import RetrievalConfig
from jade.errors import ConfigError, DocumentError, IndexUnusable
from jade.retrieval.base import Retriever
from jade.retrieval.open import open_retriever
from jade.retrieval.shards import ShardedRetriever, read_shards
from jade.retrieval.shards_build import build_shards
from jade.retrieval.shards_serve import open_remote_shards, shard_servers, share_out
from jade.types import Passage
from patience import PATIENCE_SECONDS, running, until

WORDS = ["river", "town", "mill", "school", "north", "sea", "the", "a", "Ünïon", "1902"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=14)


def retriever_over(folder: Path) -> Retriever:
    return open_retriever(RetrievalConfig(index=str(folder), inline=True))


def found_by(retriever: Retriever, queries: Sequence[str], k: int) -> list[list[Passage]]:
    async def search() -> list[list[Passage]]:
        try:
            return await retriever.search(queries, k)
        finally:
            await retriever.close()

    return asyncio.run(search())


@settings(max_examples=25)
@given(texts=TEXTS, size=st.integers(1, 6), k=st.integers(1, 5), query=st.lists(st.sampled_from(WORDS), max_size=5))
def test_the_merged_ranking_is_that_of_one_index_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, k: int, query: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    given_passages = [Passage("same", "River" if n % 3 else "", text, f"t:{n}") for n, text in enumerate(texts)]
    build(folder / "whole", given_passages)
    build_shards(given_passages, folder / "shards", size)
    queries = [" ".join(query), "river mill", "the"]
    whole = found_by(retriever_over(folder / "whole"), queries, k)
    assert found_by(retriever_over(folder / "shards"), queries, k) == whole


def test_real_passages_rank_as_in_one_index(benchmark_data: Path, tmp_path: Path) -> None:
    import gzip

    with gzip.open(benchmark_data / "corpus_main.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for _, line in zip(range(3000), lines, strict=False)]
    found = [Passage(str(row["id"]), row["title"], row["text"], "t") for row in rows]
    with gzip.open(benchmark_data / "nq.dev.jsonl.gz", "rt") as lines:
        queries = [json.loads(line)["question"] for line in lines][:100]
    build(tmp_path / "whole", found)
    build_shards(found, tmp_path / "shards", 700)
    assert len(read_shards(tmp_path / "shards").starts) == 5
    assert found_by(retriever_over(tmp_path / "shards"), queries, 20) == found_by(
        retriever_over(tmp_path / "whole"), queries, 20
    )


async def test_of_equal_scores_the_earlier_part_comes_first() -> None:
    front = ShardedRetriever([EchoRetriever(), EchoRetriever()])
    (best,) = await front.search(["ab"], 3)
    assert [passage.id for passage in best] == ["ab1", "ab1", "ab2"]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("towns") / "shards"
    build_shards(TOWNS, folder, 1)
    return folder


QUERIES = ["river Len", "Ashford school", "nothing of the kind"]


def test_shards_in_processes_answer_as_shards_in_one(sharded: Path) -> None:
    cfg = RetrievalConfig(index=str(sharded))
    with shard_servers(cfg, 2) as urls:
        assert [httpx.get(f"{url}/health", timeout=PATIENCE_SECONDS).json()["shards"] for url in urls] == [
            [0, 1],
            [2, 3],
        ]
        found = found_by(open_remote_shards(urls, cfg), QUERIES, 3)
    assert found == found_by(retriever_over(sharded), QUERIES, 3)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{urls[0]}/health")


def test_the_server_starts_its_shards_and_takes_them_along_when_it_goes(sharded: Path) -> None:
    command = [sys.executable, "-m", "jade", "retrieve-server", "--index", str(sharded), "--shards", "2", "--port", "0"]
    body = {"queries": QUERIES, "topk": 2, "return_scores": True}
    with running(command, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        port = next(line.split(":")[-1].split()[0] for line in server.stderr if "running on" in line)
        answer = httpx.post(f"http://127.0.0.1:{port}/retrieve", json=body, timeout=PATIENCE_SECONDS).json()["result"]
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_SECONDS) in (0, 130)
    wanted = found_by(retriever_over(sharded), QUERIES, 2)
    assert [[item["score"] for item in one] for one in answer] == [[p.score for p in one] for one in wanted]
    assert len(children) >= 2
    until(lambda: not any(map(_lives, children)))


def _lives(process: str) -> bool:
    """Who has ended but was not yet asked for by its parent has no command line any more."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("num", "expected"), [(3, [[0], [1], [2, 3]]), (1, [[0, 1, 2, 3]])])
def test_neighbouring_shards_stay_together(sharded: Path, num: int, expected: list[list[int]]) -> None:
    assert [list(group) for group in share_out(str(sharded), num)] == expected


def test_shards_are_made_from_documents(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for number, town in enumerate(TOWNS):
        (tmp_path / "docs" / f"{number}.txt").write_text(town.text)
    arguments = ["index", str(tmp_path / "docs"), "--out", str(tmp_path / "out"), "--shard-size", "3"]
    result = CliRunner().invoke(app, arguments)
    assert "4 passages in 2 shards" in result.output
    (found,) = found_by(retriever_over(tmp_path / "out"), ["Brazil coast"], 2)
    assert found[0].text == TOWNS[3].text


def test_every_byte_of_all_shards_is_checked(tmp_path: Path) -> None:
    build_shards(TOWNS, tmp_path / "s", 2)
    arguments = ["index", "--verify", "--out", str(tmp_path / "s")]
    assert "files are as written; 4 passages" in CliRunner().invoke(app, arguments).output
    damaged = next((tmp_path / "s" / "shard-00001").glob("data-*/passages.jsonl"))
    damaged.write_bytes(damaged.read_bytes().replace(b"a", b"e"))
    with pytest.raises(IndexUnusable, match=r"shard-00001 is damaged: passages\.jsonl"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize("option", [("--dense",), ("--encoder", "minilm"), ("--faiss", "vectors.faiss")])
def test_shards_that_would_be_without_what_was_asked_for_are_not_made(tmp_path: Path, option: tuple[str, ...]) -> None:
    arguments = ["index", str(tmp_path), "--out", str(tmp_path / "out"), "--shard-size", "3", *option]
    with pytest.raises(ConfigError, match="by words only"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_shards_are_replaced_whole(tmp_path: Path) -> None:
    build_shards(TOWNS, tmp_path / "s", 1)
    build_shards(passages(["a new town"]), tmp_path / "s", 1)
    assert len(read_shards(tmp_path / "s").starts) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_whoever_is_killed_while_old_shards_are_removed_has_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_shards(TOWNS, tmp_path / "s", 1)
    remove = shutil.rmtree

    def be_killed(folder: Path, ignore_errors: bool = False) -> None:
        if folder.exists():
            next(folder.rglob("manifest.json")).unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", be_killed)
    with pytest.raises(KeyboardInterrupt):
        build_shards(passages(["a new town"]), tmp_path / "s", 1)
    monkeypatch.setattr(shutil, "rmtree", remove)
    assert len(found_by(retriever_over(tmp_path / "s"), ["new town"], 3)[0]) == 1
    build_shards(passages(["a new town"]), tmp_path / "s", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path, sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "whole")
    with pytest.raises(ConfigError, match="is in one piece"):
        share_out(str(tmp_path / "whole"), 2)
    with pytest.raises(ConfigError, match="has 4 shards; give 1 to 4"):
        share_out(str(sharded), 5)
    with pytest.raises(ConfigError, match=r"holds other files \(manifest\.json\)"):
        build_shards(TOWNS, tmp_path / "whole", 2)
    with pytest.raises(DocumentError, match="no passages"):
        build_shards([], tmp_path / "none", 2)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"--out \.: .*give a folder by its name"):
        build_shards(TOWNS, Path(), 2)
    both = CliRunner().invoke(app, ["retrieve-server", "--index", "i", "--shards", "2", "--shard-urls", "http://a"])
    assert "give one of the two" in both.output + str(both.exception)
    with pytest.raises(ConfigError, match="bm25 only"):
        open_retriever(RetrievalConfig(index=str(sharded), kind="dense"))


def test_a_missing_shard_is_named_and_stops_the_server_before_it_serves(tmp_path: Path) -> None:
    build_shards(TOWNS, tmp_path / "s", 2)
    (tmp_path / "s" / "shard-00001" / "manifest.json").unlink()
    with (
        pytest.raises(IndexUnusable, match=r"could not be opened: index .*shard-00001"),
        shard_servers(RetrievalConfig(index=str(tmp_path / "s")), 2),
    ):
        pass
