"""A language model behind any OpenAI-compatible URL (vLLM, SGLang, llama.cpp, Ollama, hosted ones).

Failures that may pass (429, 5xx, timeouts, cut-off or junk answers) are tried again a bounded number of times, with
full jitter, and not before the server's Retry-After. Token ids and log-probs are asked for and used where the server
gives both for every token; otherwise they stay empty, and such a step cannot be trained. Servers report log-probs of
the raw distribution, so train on them at temperature 1 only. `Sampling.choices` is not sent: there is no common field
for it. The key is read from the environment, sent to this URL alone, and never part of a message.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import os
import random
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from jade.config import BackboneConfig
from jade.errors import BackboneFailed, ConfigError
from jade.received import UNPACKED, NotTaken, read_answer, whole
from jade.types import Finish, Generation, Prompt, Sampling

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
EXTRAS: tuple[Mapping[str, Any], ...] = ({"logprobs": True, "return_token_ids": True}, {"logprobs": True}, {})
"""Fields beyond the common ones, from most to least wanted: a server that rejects one is asked with the next."""
FINISHES: Mapping[str | None, Finish] = {"stop": "stop", None: "stop", "length": "length"}
MAX_WAIT_SECONDS = 30.0


class _Passing(Exception):
    """A failure that another try may not meet."""

    def __init__(self, cause: str, not_before_seconds: float = 0.0) -> None:
        super().__init__(cause)
        self.not_before_seconds = not_before_seconds


class _Rejected(Exception):
    """The server understood and refused; trying the same again is of no use."""

    def __init__(self, status: int, cause: str) -> None:
        super().__init__(cause)
        self.status = status


class RemoteBackbone:
    """`http://host:8000/v1#model-name`; without the fragment, the first model that /models lists."""

    def __init__(self, config: BackboneConfig, backoff_seconds: float = 0.5) -> None:
        self._url, self._model = _split(config.model)
        self._config = config
        self._backoff_seconds = backoff_seconds
        self._key = _key(config.api_key_env)
        self._extras = 0
        self._connection: _Connection | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"RemoteBackbone({_shown(self._url)!r})"

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if self._closed:
            raise BackboneFailed("the backbone was closed")
        started = time.perf_counter()
        connection = await self._connect()
        try:
            async with connection.places:
                body = _body(prompt, sampling, await self._model_name(connection))
                answer = await self._complete(connection, body)
        except _Rejected as error:
            raise BackboneFailed(self._told(str(error))) from None
        try:
            return _generation(answer, time.perf_counter() - started)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            cause = f"the answer is not of the protocol ({type(error).__name__}: {error})"
            raise BackboneFailed(self._told(cause)) from None

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection and connection.loop is asyncio.get_running_loop():
            await connection.sockets.aclose()

    async def _connect(self) -> _Connection:
        """Sockets belong to an event loop; in a new one they are opened anew."""
        loop = asyncio.get_running_loop()
        if self._connection is None or self._connection.loop is not loop:
            headers = UNPACKED | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
            limits = httpx.Limits(max_connections=self._config.concurrency)
            client = httpx.AsyncClient(headers=headers, limits=limits, timeout=self._config.timeout_seconds)
            places = asyncio.Semaphore(self._config.concurrency)
            self._connection = _Connection(loop, client, places, asyncio.Lock(), _closing(client))
            await anext(self._connection.sockets)
        return self._connection

    async def _model_name(self, connection: _Connection) -> str:
        if self._model:
            return self._model
        async with connection.naming:
            if not self._model:
                listed = await self._persist(connection, "GET", "models", None)
                self._model = _first_model(listed, self._url)
        return self._model

    async def _complete(self, connection: _Connection, body: dict[str, Any]) -> dict[str, Any]:
        """Ask for as much as the server will give, and remember how much that was."""
        for rung in range(self._extras, len(EXTRAS)):
            try:
                answer = await self._persist(connection, "POST", "chat/completions", {**body, **EXTRAS[rung]})
            except _Rejected as error:
                if error.status in (400, 422) and rung + 1 < len(EXTRAS):
                    continue
                raise
            self._extras = rung
            return answer
        raise AssertionError("the last rung returns or raises")

    async def _persist(
        self, connection: _Connection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        tries = self._config.retries + 1
        for attempt in range(tries):
            try:
                return await self._ask(connection, method, path, body)
            except _Passing as failure:
                if attempt + 1 == tries:
                    raise BackboneFailed(self._told(f"{failure} ({tries} {'tries' if tries > 1 else 'try'})")) from None
                await asyncio.sleep(pause_seconds(attempt, self._backoff_seconds, failure.not_before_seconds))
        raise AssertionError("the last try returns or raises")

    async def _ask(
        self, connection: _Connection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        limit = self._config.timeout_seconds
        try:
            # httpx limits the time between bytes; this limits the whole, against a server that drips.
            async with (
                asyncio.timeout(limit),
                connection.client.stream(method, f"{self._url}/{path}", json=body) as response,
            ):
                data = await read_answer(response)
        except NotTaken as error:
            raise BackboneFailed(self._told(str(error))) from None
        except (TimeoutError, httpx.TimeoutException):
            raise _Passing(f"no answer within {limit:g} s") from None
        except httpx.TransportError as error:
            raise _Passing(f"{type(error).__name__}: {error or 'the connection broke'}") from None
        if response.status_code in RETRIED_STATUSES:
            complaint = self._complaint(response.status_code, data)
            raise _Passing(complaint, min(MAX_WAIT_SECONDS, _retry_after(response)))
        if response.status_code != 200:
            raise _Rejected(response.status_code, self._complaint(response.status_code, data))
        return _read(data, path)

    def _complaint(self, status: int, data: bytes) -> str:
        """The status and what the server says about it, on one short line."""
        said = " ".join(data.decode("utf-8", "replace").split())[:200]
        try:
            error = json.loads(data).get("error")
            said = whole(str(error.get("message") if isinstance(error, dict) else error or said)[:200])
        except (ValueError, AttributeError, RecursionError):
            pass
        hint = f"; check the key in {self._config.api_key_env}" if status in (401, 403) else ""
        return f"HTTP {status}{f' ({said})' if said else ''}{hint}"

    def _told(self, cause: str) -> str:
        text = f"{_shown(self._url)}: {cause}"
        return text.replace(self._key, "***") if self._key else text


@dataclass(frozen=True, slots=True)
class _Connection:
    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient
    places: asyncio.Semaphore
    naming: asyncio.Lock
    sockets: AsyncGenerator[None, None]


async def _closing(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    """Closes the client when it is closed itself: an event loop that ends does that to its async generators."""
    try:
        yield
    finally:
        await client.aclose()


def _split(model: str) -> tuple[str, str]:
    """The base URL (with /v1 where no path is given) and the model's name, empty when none is given."""
    try:
        url = httpx.URL(model)
    except httpx.InvalidURL as error:
        raise ConfigError(f"backbone.model is no usable URL ({error})") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"backbone.model: {_shown(model)!r} is no http(s) URL")
    path = url.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return str(url.copy_with(path=path, fragment=None, query=None)), url.fragment


def _shown(url: str) -> str:
    """Without name and password."""
    return str(httpx.URL(url).copy_with(username="", password="", query=None, fragment=None)).replace("://@", "://")


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in environment variable {variable} has characters that no header may hold")
    return key


def _body(prompt: Prompt, sampling: Sampling, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed % 2**31,  # ours are longer than some servers take
    }


def _read(data: bytes, path: str) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        raise _Passing("the answer is not JSON") from None
    needed = "choices" if path == "chat/completions" else "data"
    if not isinstance(answer, dict) or not isinstance(answer.get(needed), list) or not answer[needed]:
        raise _Passing(f"the answer has no {needed}")
    first = answer[needed][0]
    if not isinstance(first, dict) or (needed == "choices" and not isinstance(first.get("message"), dict)):
        raise _Passing("the answer's first choice has no message")
    return answer


def _first_model(listed: Mapping[str, Any], url: str) -> str:
    name = listed["data"][0].get("id")
    if not isinstance(name, str) or not name:
        raise BackboneFailed(f"{_shown(url)}: /models names no model; give it in the URL, as {_shown(url)}#NAME")
    return name


def _generation(answer: Mapping[str, Any], seconds: float) -> Generation:
    choice = answer["choices"][0]
    usage = answer.get("usage") or {}
    prompt_ids, token_ids, logprobs = _sampled(answer, choice)
    return Generation(
        text=whole(str(choice["message"].get("content") or "")),
        prompt_ids=prompt_ids,
        token_ids=token_ids,
        logprobs=logprobs,
        finish=FINISHES.get(choice.get("finish_reason"), "error"),
        seconds=seconds,
        prompt_tokens=int(usage.get("prompt_tokens") or len(prompt_ids)),
        completion_tokens=int(usage.get("completion_tokens") or len(token_ids)),
    )


def _sampled(
    answer: Mapping[str, Any], choice: Mapping[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    """Prompt ids, token ids and log-probs: all three, or none."""
    prompt_ids = answer.get("prompt_token_ids") or choice.get("prompt_token_ids") or ()
    token_ids = choice.get("token_ids") or ()
    rows = (choice.get("logprobs") or {}).get("content") or ()
    if not prompt_ids or not token_ids or len(rows) != len(token_ids):
        return (), (), ()
    logprobs = tuple(float(row["logprob"]) for row in rows)
    if not all(map(math.isfinite, logprobs)):
        return (), (), ()
    return tuple(map(int, prompt_ids)), tuple(map(int, token_ids)), logprobs


def pause_seconds(attempt: int, backoff_seconds: float, not_before_seconds: float = 0.0) -> float:
    """How long to wait after a try (counted from 0) has failed: anything up to a bound that doubles with every try, so
    that those who failed together do not come back together."""
    ceiling = min(MAX_WAIT_SECONDS, backoff_seconds * 2**attempt)
    return max(random.uniform(0, ceiling), not_before_seconds)


def _retry_after(response: httpx.Response) -> float:
    """Seconds to wait by the server's word, given as a number or as a date."""
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        date = email.utils.parsedate_tz(value)
    try:
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else 0.0
    except (ValueError, OverflowError):  # a date that no calendar has
        return 0.0
