"""Search on another machine: over real HTTP, with servers that misbehave."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from retrieval_builders import EchoRetriever, misbehaving, serving

from jade.errors import ConfigError, RetrievalFailed
from jade.retrieval.base import Retriever
from jade.retrieval.remote import RemoteRetriever, endpoint
from jade.retrieval.server import make_app
from jade.types import Passage
from loopback import Handler, listening


def answer(*lists: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"result": lists}).encode()


GOOD = answer([{"document": {"id": "7", "contents": '"Len"\nA river.'}, "score": 0.5}])


async def ask(url: str, queries: list[str] | None = None, k: int = 2, **options: Any) -> list[list[Passage]]:
    retriever = RemoteRetriever(url, **{"timeout_seconds": 60.0, "retries": 2, "wait_seconds": 0.001, **options})
    assert isinstance(retriever, Retriever)
    try:
        return await retriever.search(["q"] if queries is None else queries, k)
    finally:
        await retriever.close()
        await retriever.close()


async def failure(url: str, **options: Any) -> str:
    with pytest.raises(RetrievalFailed) as caught:
        await ask(url, **options)
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_what_the_server_found_comes_back_the_same() -> None:
    echo = EchoRetriever()
    with serving(make_app(echo)) as url:
        found = await ask(url, ["river", "town"])
    assert found == await EchoRetriever().search(["river", "town"], 2)
    assert echo.closed


async def test_many_queries_travel_in_several_calls_and_keep_their_order() -> None:
    echo = EchoRetriever()
    queries = [f"q{n}" for n in range(600)]
    with serving(make_app(echo)) as url:
        found = await ask(url, queries, 1)
    assert [passages[0].text for passages in found] == queries
    assert sorted(len(asked) for asked, _ in echo.asked) == [88, 256, 256]


async def test_search_r1_documents_are_understood_with_and_without_scores() -> None:
    bare = {"id": 8, "contents": "no title"}
    nameless = {"contents": '"T"\ntext'}
    with misbehaving(answer([{"document": bare, "score": 2}], [bare, nameless, bare])) as (url, _):
        scored, unscored = await ask(url, ["a", "b"])
    assert scored == [Passage("8", "", "no title", f"{url}/retrieve", 2.0)]
    assert [(one.id, one.title, one.score) for one in unscored] == [("8", "", 0.0), ("T\ntext", "T", 0.0)]


async def test_the_request_is_that_of_the_protocol() -> None:
    with misbehaving(GOOD) as (url, received):
        await ask(url, ["caf\u00e9 \ud800"], 3)
    assert json.loads(received[0]) == {"queries": ["café ?"], "topk": 3, "return_scores": True}


@pytest.mark.parametrize("trouble", [(500, b"oops"), (503, b""), (429, b"slow down"), (0, b"")])
async def test_trouble_that_passes_is_tried_again(trouble: tuple[int, bytes]) -> None:
    with misbehaving(trouble, trouble, GOOD) as (url, received):
        found = await ask(url)
    assert found[0][0].title == "Len"
    assert len(received) == 3


async def test_trouble_that_stays_ends_after_the_bound() -> None:
    with misbehaving((500, b"oops")) as (url, received):
        assert "status 500 (3 tries)" in await failure(url)
        assert "status 500 (1 try)" in await failure(url, retries=0)
    assert len(received) == 4


async def test_a_refusal_is_not_tried_again() -> None:
    with misbehaving((422, b'{"error": "topk too\\nlarge"}')) as (url, received):
        assert "status 422" in await failure(url)
    assert len(received) == 1


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    with misbehaving(None) as (url, _):
        assert "no answer within 0.1 s (2 tries)" in await failure(url, timeout_seconds=0.1, retries=1)


JUNK = [
    b"<html>",
    b"",
    b"null",
    b"[]",
    b'{"results": []}',
    b'{"result": []}',
    b'{"result": [[], []]}',
    b'{"result": [5]}',
    b'{"result": [[5]]}',
    b'{"result": [[{"document": {"id": 1}, "score": 1}]]}',
    b'{"result": [[{"document": {"contents": "x"}, "score": "high"}]]}',
    b'{"result": [[{"document": {"contents": "x"}, "score": NaN}]]}',
    b'{"result": [[{"document": {"contents": "x"}, "score": 1%s}]]}' % (b"0" * 400),
    b'{"result": "x"}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("junk", JUNK)
async def test_an_answer_that_is_none_fails_with_one_line(junk: bytes) -> None:
    with misbehaving((200, junk)) as (url, received):
        assert "its answer is not of the protocol" in await failure(url)
    assert len(received) == 1


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with misbehaving((200, b"x" * 5000)) as (url, _):
        assert "its answer is larger than 1,000 bytes" in await failure(url, most_bytes=1000)


async def test_a_packed_answer_is_not_unpacked() -> None:
    """Twice packed, a megabyte holds a terabyte."""

    class Packing(Handler):
        def do_POST(self) -> None:
            self.body()
            self.answer(200, gzip.compress(GOOD[1]), {"Content-Encoding": "gzip, gzip"})

    with listening(Packing) as url:
        assert "its answer is packed, which it was asked not to do" in await failure(url)


async def test_a_password_in_the_url_stands_in_no_passage_and_no_complaint() -> None:
    """Both end in traces, and the passage's source under every answer."""
    with misbehaving(answer([{"contents": "x"}]), (422, b"no")) as (url, _):
        secret = url.replace("://", "://alice:s3cret@")
        ((passage,),) = await ask(secret)
        assert passage.source == f"{url}/retrieve"
        with pytest.raises(RetrievalFailed) as caught:
            await ask(secret)
    assert "s3cret" not in str(caught.value)


async def test_half_a_character_is_made_whole() -> None:
    with misbehaving((200, rb'{"result": [[{"id": "\ud800", "title": "T\ud800", "text": "x\udfff"}]]}')) as (url, _):
        (((passage,),),) = (await ask(url),)
    assert (passage.id, passage.title, passage.text) == ("?", "T?", "x?")


async def test_a_server_that_is_not_there_is_named() -> None:
    with misbehaving(GOOD) as (url, _):
        pass
    assert "(3 tries)" in await failure(url)


async def test_nothing_is_sent_for_nothing() -> None:
    with misbehaving(GOOD) as (url, received):
        assert await ask(url, []) == []
        assert await ask(url, ["a"], 0) == [[]]
    assert received == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a:1", "http://a:1/retrieve"),
        ("http://a:1/", "http://a:1/retrieve"),
        ("https://a/b/retrieve", "https://a/b/retrieve"),
        ("http://a/b/", "http://a/b/retrieve"),
    ],
)
def test_the_route_may_be_left_out(url: str, expected: str) -> None:
    assert endpoint(url) == expected


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:port", "file:///etc/passwd"])
def test_an_address_that_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"retrieval\.index"):
        endpoint(url)
