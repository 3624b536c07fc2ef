"""Whatever is sent, the answer is the sender's mistake (4xx), never ours (5xx)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
from serve_builders import SIMPLE, make_app, make_crew, num_calls, serving

NUM_BODIES = 1000
_WRONG_VALUES: tuple[Any, ...] = (None, 1, -1.5, True, [], {}, [[]], {"a": 1}, ["x"], 10**40, "\ud800", "")


def test_a_thousand_malformed_bodies_are_4xx_each() -> None:
    crew = make_crew()
    with serving(make_app(crew)) as url, closing(HTTPConnection(url.removeprefix("http://"))) as http:
        for number, (path, body) in enumerate(malformed_bodies(random.Random(5))):
            http.request("POST", path, body, {"Content-Type": "application/json"})
            response = http.getresponse()
            said = response.read()
            assert 400 <= response.status < 500, (number, path, body[:200], said[:200])
            assert json.loads(said)["error"]["message"]
        assert httpx.post(f"{url}/v1/ask", json={"question": SIMPLE}).status_code == 200
    assert num_calls(crew) == 4


def malformed_bodies(dice: random.Random) -> Iterator[tuple[str, bytes]]:
    makers = (_garbage, _cut_off, _wrong_type, _missing, _nested)
    for number in range(NUM_BODIES):
        path = dice.choice(["/v1/ask", "/v1/chat/completions"])
        yield path, makers[number % len(makers)](path, dice)


def _valid(path: str) -> dict[str, Any]:
    return {"question": SIMPLE} if path == "/v1/ask" else {"messages": [{"role": "user", "content": SIMPLE}]}


def _garbage(path: str, dice: random.Random) -> bytes:
    return b"\xff" + dice.randbytes(dice.randrange(200))


def _cut_off(path: str, dice: random.Random) -> bytes:
    body = json.dumps(_valid(path)).encode()
    return body[: dice.randrange(len(body))]


def _wrong_type(path: str, dice: random.Random) -> bytes:
    body = _valid(path)
    value = dice.choice(_WRONG_VALUES)
    if path == "/v1/ask":
        body["question"] = value
    else:
        place = dice.choice([("role",), ("content",), ()])
        (body["messages"][0] if place else body)[place[0] if place else "messages"] = value
    return json.dumps(body).encode()


def _missing(path: str, dice: random.Random) -> bytes:
    return json.dumps(dice.choice([{}, [], None, "question", 7, {"quest": SIMPLE}, {"messages": []}])).encode()


def _nested(path: str, dice: random.Random) -> bytes:
    depth = dice.choice([5, 500, 100_000])
    return b'{"question":' + b"[" * depth + b"]" * depth + b',"messages":' + b'{"a":' * 50 + b"1" + b"}" * 50 + b"}"


def test_a_question_of_a_million_characters_is_413_and_costs_no_call() -> None:
    crew = make_crew()
    with serving(make_app(crew)) as url:
        for size in (4001, 900_000, 2_000_000):
            assert httpx.post(f"{url}/v1/ask", json={"question": "x" * size}).status_code == 413, size
        assert httpx.post(f"{url}/v1/ask", json={"question": "x" * 4000}).status_code == 200
    assert num_calls(crew) == 4


STRANGE = ("<script>alert(1)</script>", "a\x00b", "\u202eright to left", "😀" * 200, "'; DROP TABLE x")


def test_strange_questions_are_only_questions() -> None:
    with serving(make_app()) as url:
        for text in STRANGE:
            reply = httpx.post(f"{url}/v1/ask", json={"question": text})
            assert reply.status_code == 200, text
            assert reply.json()["trace"]["question"]["text"] == text


def test_half_a_character_is_told_as_that_and_not_as_another_form() -> None:
    halved = rb'{"messages": [{"role": "user", "content": "\ud800"}]}'
    with serving(make_app()) as url:
        json_body = {"Content-Type": "application/json"}
        refusal = httpx.post(f"{url}/v1/chat/completions", content=halved, headers=json_body)
    assert "half of a surrogate pair" in refusal.json()["error"]["message"]


def test_a_body_of_another_kind_is_refused() -> None:
    """A form on a foreign web page can send text/plain without asking; it must not start work."""
    crew = make_crew()
    body = json.dumps({"question": SIMPLE}).encode()
    with serving(make_app(crew)) as url:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
            headers = {"Content-Type": kind} if kind else {}
            status = httpx.post(f"{url}/v1/ask", content=body, headers=headers).status_code
            assert 400 <= status < 500, kind
    assert num_calls(crew) == 0
