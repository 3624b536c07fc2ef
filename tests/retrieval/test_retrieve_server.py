"""The retrieval server over real HTTP: the protocol, its limits and its refusals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from retrieval_builders import EchoRetriever, build, serving

from jade.config import RetrievalConfig, ServeConfig
from jade.errors import RetrievalFailed
from jade.retrieval.open import open_retriever
from jade.retrieval.server import ServerLimits, make_app
from jade.types import Passage

LIMITS = ServerLimits(body_bytes=2000, queries=3, query_chars=50, topk=10)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(make_app(EchoRetriever(), k=2, limits=LIMITS, about={"kind": "echo"})) as address:
        yield address


def post(url: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/retrieve", json=body)


def test_documents_come_with_scores_when_asked(url: str) -> None:
    assert post(url, queries=["len"], topk=1, return_scores=True).json() == {
        "result": [
            [
                {
                    "document": {
                        "id": "len1", "contents": '"Len"\nlen', "title": "Len", "text": "len", "source": "echo",
                    },
                    "score": 1.0,
                }
            ]
        ]
    }  # fmt: skip


def test_documents_come_bare_when_not_and_k_has_a_default(url: str) -> None:
    (found,) = post(url, queries=["len"]).json()["result"]
    assert [document["contents"] for document in found] == ['"Len"\nlen'] * 2


def test_no_queries_find_nothing(url: str) -> None:
    assert post(url, queries=[]).json() == {"result": []}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "queries"),
        ({"queries": "len"}, "queries"),
        ({"queries": [5]}, "queries.0"),
        ({"queries": ["a"] * 4}, "queries"),
        ({"queries": ["a" * 51]}, "queries.0"),
        ({"queries": ["a"], "topk": 0}, "topk"),
        ({"queries": ["a"], "topk": 11}, "topk"),
        ({"queries": ["a"], "topk": "5"}, "topk"),
        ({"queries": ["a"], "topk": True}, "topk"),
        ({"queries": ["a"], "return_scores": "perhaps"}, "return_scores"),
    ],
)
def test_a_bad_body_is_refused_and_the_field_named(url: str, body: dict[str, Any], named: str) -> None:
    response = post(url, **body)
    assert response.status_code == 422
    assert named in response.json()["error"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"queries"', b"[" * 1500])
def test_a_body_that_is_no_object_is_refused(url: str, content: bytes) -> None:
    response = httpx.post(f"{url}/retrieve", content=content, headers={"Content-Type": "application/json"})
    assert 400 <= response.status_code < 500
    assert response.json().keys() <= {"error", "detail"}


def test_a_large_body_is_refused_announced_or_not(url: str) -> None:
    announced = httpx.post(f"{url}/retrieve", content=b" " * 2001)
    chunked = httpx.post(f"{url}/retrieve", content=iter([b" " * 1500] * 2))
    assert announced.status_code == chunked.status_code == 413
    assert announced.json() == {"error": "body larger than 2,000 bytes"}


def test_a_web_page_that_makes_its_own_name_point_here_reads_nothing() -> None:
    def status(url: str, name: str) -> int:
        return httpx.post(f"{url}/retrieve", json={"queries": ["len"]}, headers={"Host": name}).status_code

    names = ("evil.example", "evil.example:80", "jade.test", "127.0.0.1:1", "localhost", "[::1]:9")
    with serving(make_app(EchoRetriever(), serve=ServeConfig(allowed_hosts=("jade.test",)))) as url:
        assert [status(url, name) for name in names] == [421, 421, 200, 200, 200, 200]
    with serving(make_app(EchoRetriever(), serve=ServeConfig(host="0.0.0.0"))) as url:
        assert status(url, "search.example") == 200


def test_a_client_that_goes_away_does_not_stop_the_server(url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert post(url, queries=["a"]).status_code == 200


def test_health_says_what_is_served(url: str) -> None:
    assert httpx.get(f"{url}/health").json() == {"status": "ok", "kind": "echo"}
    assert httpx.get(f"{url}/retrieve").status_code == 405
    assert httpx.get(f"{url}/docs").status_code == 404


def test_a_search_that_fails_is_the_servers_fault_in_one_line() -> None:
    class Broken(EchoRetriever):
        async def search(self, queries: object, k: int) -> list[list[Passage]]:
            raise RetrievalFailed("the disk is gone")

    with serving(make_app(Broken())) as address:
        response = post(address, queries=["a"])
    assert (response.status_code, response.json()) == (503, {"error": "the disk is gone"})


async def test_an_index_behind_a_server_answers_as_it_does_at_home(tmp_path: Path) -> None:
    build(tmp_path / "index")
    home = open_retriever(RetrievalConfig(index=str(tmp_path / "index")))
    queries = ["river near Ashford", "paraiba", "nothing known"]
    with serving(make_app(open_retriever(RetrievalConfig(index=str(tmp_path / "index"))))) as address:
        away = open_retriever(RetrievalConfig(index=address))
        one, other = await asyncio.gather(home.search(queries, 3), away.search(queries, 3))
        await away.close()
    assert one == other
    assert [len(found) for found in one] == [3, 1, 0]
    await home.close()
