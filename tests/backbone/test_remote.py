"""The remote backbone against a server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from misbehaving_server import Act, Server, completion, serving

from jade.backbone.base import Backbone
from jade.backbone.remote import MAX_WAIT_SECONDS, RemoteBackbone, _retry_after, pause_seconds
from jade.config import BackboneConfig
from jade.errors import BackboneFailed, ConfigError
from jade.received import MOST_BYTES
from jade.types import Generation, Prompt, Sampling
from patience import PATIENCE_SECONDS, until

PROMPT = Prompt("AG", "Answer briefly.", "What is the capital of France?")
KEY = "sk-secret-0123456789"


@asynccontextmanager
async def opened(server: Server, model: str = "", **settings: Any) -> AsyncIterator[RemoteBackbone]:
    settings = {"retries": 3, "timeout_seconds": PATIENCE_SECONDS, **settings}
    config = BackboneConfig(model=server.url + model, api_key_env="JADE_TEST_KEY", **settings)
    backbone = RemoteBackbone(config, backoff_seconds=0.01)
    try:
        yield backbone
    finally:
        await backbone.close()


async def ask(server: Server, sampling: Sampling | None = None, **settings: Any) -> Generation:
    async with opened(server, "#m", **settings) as backbone:
        return await backbone.generate(PROMPT, sampling or Sampling())


async def test_a_prompt_and_its_sampling_arrive_and_the_answer_comes_back() -> None:
    with serving() as server:
        found = await ask(server, Sampling(temperature=0.7, top_p=0.9, max_tokens=40, seed=2**40 + 5))
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["key"] is None
    assert request["body"] == {
        "model": "m",
        "messages": [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}],
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 40,
        "seed": (2**40 + 5) % 2**31,
        "logprobs": True,
        "return_token_ids": True,
    }
    assert (found.text, found.finish, found.prompt_tokens, found.completion_tokens) == ("Paris", "stop", 11, 3)
    assert found.token_ids == found.logprobs == found.prompt_ids == ()
    assert found.seconds > 0


@pytest.mark.parametrize(
    ("finish", "expected"), [("stop", "stop"), ("length", "length"), ("content_filter", "error"), (None, "stop")]
)
async def test_the_servers_reason_to_finish_is_translated(finish: str, expected: str) -> None:
    with serving(Act(body=completion(finish=finish))) as server:
        assert (await ask(server)).finish == expected


async def test_token_ids_and_log_probs_are_taken_where_the_server_has_them() -> None:
    content = [{"token": "x", "logprob": -0.5}, {"token": "y", "logprob": -0.25}]
    answer = completion(token_ids=[7, 2], logprobs={"content": content}) | {"prompt_token_ids": [1, 5, 6]}
    with serving(Act(body=answer)) as server:
        found = await ask(server)
    assert (found.prompt_ids, found.token_ids, found.logprobs) == ((1, 5, 6), (7, 2), (-0.5, -0.25))


async def test_log_probs_that_do_not_match_the_tokens_are_not_used() -> None:
    answer = completion(token_ids=[7, 2], logprobs={"content": [{"logprob": -0.5}]}) | {"prompt_token_ids": [1]}
    with serving(Act(body=answer)) as server:
        found = await ask(server)
    assert found.token_ids == found.logprobs == found.prompt_ids == ()
    assert found.text == "Paris"


async def test_log_probs_that_are_no_numbers_are_not_used() -> None:
    answer = completion(token_ids=[7], logprobs={"content": [{"logprob": math.nan}]}) | {"prompt_token_ids": [1]}
    with serving(Act(body=answer)) as server:
        assert (await ask(server)).logprobs == ()


async def test_half_a_character_is_made_whole() -> None:
    """It could not be written into a report, nor sent to a model."""
    with serving(Act(body=completion("Par\ud800is"))) as server:
        assert (await ask(server)).text == "Par?is"


GARBAGE = {
    "usage": completion() | {"usage": [1]},
    "counts": completion() | {"usage": {"prompt_tokens": math.inf}},
    "finish": completion(finish_reason=["stop"]),
    "logprobs": completion(token_ids=[1], logprobs={"content": [5]}) | {"prompt_token_ids": [1]},
    "token ids": completion(token_ids=7, logprobs={"content": [{}]}) | {"prompt_token_ids": 5},
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_inside_an_answer_is_one_line_that_names_the_server(kind: str) -> None:
    with (
        serving(Act(body=GARBAGE[kind])) as server,
        pytest.raises(BackboneFailed, match="the answer is not of the protocol") as caught,
    ):
        await ask(server)
    assert server.url in str(caught.value)


@pytest.mark.parametrize("packing", ["gzip", "gzip, gzip", "deflate"])
async def test_a_packed_answer_is_not_unpacked(packing: str) -> None:
    """Twice packed, a megabyte holds a terabyte."""
    with (
        serving(Act(body=gzip.compress(b"{}"), headers={"Content-Encoding": packing})) as server,
        pytest.raises(BackboneFailed, match="packed, which it was asked not to do"),
    ):
        await ask(server)
    assert server.requests[0]["packings"] == "identity"


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with (
        serving(Act(body="x" * (MOST_BYTES + 1))) as server,
        pytest.raises(BackboneFailed, match="larger than 64,000,000 bytes"),
    ):
        await ask(server)


async def test_a_redirect_is_not_followed_and_takes_no_key_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JADE_TEST_KEY", KEY)
    with (
        serving() as elsewhere,
        serving(Act(307, "", {"Location": elsewhere.url})) as server,
        pytest.raises(BackboneFailed, match="HTTP 307"),
    ):
        await ask(server)
    assert elsewhere.requests == []


async def test_a_server_that_knows_no_extra_fields_is_asked_without_them_from_then_on() -> None:
    refuse = Act(400, {"error": {"message": "Unrecognized request argument supplied"}})
    with serving(refuse, refuse) as server:
        async with opened(server, "#m") as backbone:
            await backbone.generate(PROMPT, Sampling())
            await backbone.generate(PROMPT, Sampling())
    asked = [("logprobs" in body, "return_token_ids" in body) for body in server.bodies]
    assert asked == [(True, True), (True, False), (False, False), (False, False)]


async def test_a_prompt_that_is_refused_does_not_cost_the_next_one_its_token_ids() -> None:
    refuse = Act(400, {"error": {"message": "prompt too long"}})
    with serving(refuse, refuse, refuse) as server:
        async with opened(server, "#m") as backbone:
            with pytest.raises(BackboneFailed, match=r"HTTP 400 \(prompt too long\)"):
                await backbone.generate(PROMPT, Sampling())
            await backbone.generate(PROMPT, Sampling())
    assert "return_token_ids" in server.bodies[-1]


FAILURES = {
    "busy": Act(429, {"error": {"message": "slow down"}}),
    "broken": Act(500, "<html>oops</html>"),
    "overloaded": Act(503, ""),
    "slow": Act(body=completion(), wait_seconds=PATIENCE_SECONDS),
    "cut off": Act(body=completion(), cut_off=True),
    "junk": Act(body="{ not json"),
    "empty": Act(body={"choices": []}),
    "null choice": Act(body={"choices": [None]}),
    "a list": Act(body=[1, 2]),
    "brackets": Act(body="[" * 100_000),
    "a charset": Act(503, "no", {"Content-Type": "text/html; charset=zlib"}),
    "a date": Act(503, "", {"Retry-After": "Wed, 21 Oct 99999 07:28:00 GMT"}),
}
CAUSES = {
    "busy": r"HTTP 429 \(slow down\)",
    "broken": r"HTTP 500 \(<html>oops</html>\)",
    "overloaded": "HTTP 503",
    "slow": r"no answer within 0.5 s",
    "cut off": "RemoteProtocolError",
    "junk": "not JSON",
    "empty": "no choices",
    "null choice": "no message",
    "a list": "no choices",
    "brackets": "not JSON",
    "a charset": r"HTTP 503 \(no\)",
    "a date": "HTTP 503",
}


IMPATIENT: dict[str, dict[str, Any]] = {"slow": {"timeout_seconds": 0.5}}


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_failure_that_passes_is_not_noticed(kind: str) -> None:
    with serving(FAILURES[kind]) as server:
        assert (await ask(server, retries=9, **IMPATIENT.get(kind, {}))).text == "Paris"
        assert len(server.requests) == 2 or kind in IMPATIENT


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_failure_that_stays_ends_after_the_retries_and_names_url_and_cause(kind: str) -> None:
    with serving(*[FAILURES[kind]] * 9) as server:
        with pytest.raises(BackboneFailed, match=CAUSES[kind]) as caught:
            await ask(server, retries=1, **IMPATIENT.get(kind, {}))
        assert len(server.requests) == 2
    assert server.url in str(caught.value)
    assert "2 tries" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 404, 413])
async def test_a_refusal_is_not_tried_again(status: int) -> None:
    with serving(Act(status, {"error": "no"})) as server:
        with pytest.raises(BackboneFailed, match=rf"HTTP {status} \(no\)"):
            await ask(server)
        assert len(server.requests) == 1


async def test_retry_after_is_waited_for() -> None:
    with serving(Act(429, {}, {"Retry-After": "0.4"})) as server:
        await ask(server)
        assert server.times[1] - server.times[0] >= 0.4


def test_retry_after_is_a_number_or_a_date() -> None:
    # Not parametrised: a test whose name tells the time is another test in every process.
    in_an_hour = formatdate(time.time() + 3600, usegmt=True)
    for value, seconds in (("12", 12), (in_an_hour, 3600), ("soon", 0), ("-5", 0)):
        assert _retry_after(httpx.Response(429, headers={"Retry-After": value})) == pytest.approx(seconds, rel=0.1)


def test_those_who_failed_together_do_not_come_back_together() -> None:
    for attempt, ceiling in ((0, 0.5), (1, 1.0), (3, 4.0), (30, MAX_WAIT_SECONDS)):
        pauses = [pause_seconds(attempt, 0.5) for _ in range(200)]
        assert 0 <= min(pauses) < 0.2 * ceiling
        assert 0.8 * ceiling < max(pauses) <= ceiling
        assert len(set(pauses)) == len(pauses)
    assert pause_seconds(0, 0.5, not_before_seconds=7.0) == 7.0


async def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        backbone = RemoteBackbone(BackboneConfig(model=f"{url}#m", retries=1), backoff_seconds=0.01)
        with pytest.raises(BackboneFailed, match=f"{url}: ConnectError"):
            await backbone.generate(PROMPT, Sampling())
        await backbone.close()


async def test_the_model_is_discovered_once_when_the_url_names_none() -> None:
    with serving() as server:
        async with opened(server) as backbone:
            await asyncio.gather(*(backbone.generate(PROMPT, Sampling()) for _ in range(5)))
    assert [request["path"] for request in server.requests].count("/v1/models") == 1
    assert {body["model"] for body in server.bodies} == {"served-model"}


async def test_a_url_without_a_path_means_v1() -> None:
    with serving() as server:
        config = BackboneConfig(model=server.url.removesuffix("/v1"))
        backbone = RemoteBackbone(config)
        assert (await backbone.generate(PROMPT, Sampling())).text == "Paris"
        await backbone.close()


async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    with serving(*[Act(body=completion(), wait_seconds=PATIENCE_SECONDS)] * 12) as server:
        async with opened(server, "#m", concurrency=3) as backbone:
            calls = asyncio.gather(*(backbone.generate(PROMPT, Sampling()) for _ in range(12)))
            await asyncio.to_thread(until, lambda: server.busy == 3)
            await asyncio.sleep(0.05)  # time enough for a fourth that should not come
            server.over.set()
            await calls
        assert server.most_busy == 3


async def test_the_key_is_sent_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JADE_TEST_KEY", f"{KEY}\n")
    echo = Act(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with serving(echo) as server, caplog.at_level(logging.DEBUG):
        async with opened(server, "#m") as backbone:
            with pytest.raises(BackboneFailed, match="check the key in JADE_TEST_KEY") as caught:
                await backbone.generate(PROMPT, Sampling())
            shown = [repr(backbone), str(caught.value), repr(caught.value), caplog.text]
    assert server.requests[0]["key"] == f"Bearer {KEY}"
    assert not [text for text in shown if KEY in text]


async def test_a_password_in_the_url_is_not_shown() -> None:
    with serving(Act(404, {})) as server:
        config = BackboneConfig(model=server.url.replace("://", "://me:hunter2@") + "#m")
        backbone = RemoteBackbone(config)
        with pytest.raises(BackboneFailed) as caught:
            await backbone.generate(PROMPT, Sampling())
        assert "hunter2" not in str(caught.value) + repr(backbone)
        await backbone.close()


@pytest.mark.parametrize("url", ["http://", "ftp://host/v1", "http://host:port/v1"])
def test_a_url_that_cannot_be_used_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"backbone\.model"):
        RemoteBackbone(BackboneConfig(model=url))


def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JADE_TEST_KEY", "sk-ключ")
    with pytest.raises(ConfigError, match="JADE_TEST_KEY") as caught:
        RemoteBackbone(BackboneConfig(model="http://host/v1", api_key_env="JADE_TEST_KEY"))
    assert "ключ" not in str(caught.value)


async def test_cancelling_a_call_frees_its_place() -> None:
    with serving(Act(body=completion(), wait_seconds=PATIENCE_SECONDS)) as server:
        async with opened(server, "#m", concurrency=1) as backbone:
            slow = asyncio.create_task(backbone.generate(PROMPT, Sampling()))
            await asyncio.to_thread(server.arrived.wait)
            slow.cancel()
            found = await backbone.generate(PROMPT, Sampling())
    assert found.text == "Paris"


async def test_a_closed_backbone_says_so_and_may_be_closed_twice() -> None:
    with serving() as server:
        async with opened(server, "#m") as backbone:
            assert isinstance(backbone, Backbone)
            await backbone.close()
            with pytest.raises(BackboneFailed, match="closed"):
                await backbone.generate(PROMPT, Sampling())


def test_one_backbone_serves_one_event_loop_after_another() -> None:
    with serving() as server:
        backbone = RemoteBackbone(BackboneConfig(model=f"{server.url}#m"))
        texts = [asyncio.run(backbone.generate(PROMPT, Sampling())).text for _ in range(3)]
        asyncio.run(backbone.close())
    assert texts == ["Paris"] * 3
