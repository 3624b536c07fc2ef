"""The door: what every request passes before anything reads it.

In this order: is it meant for this host, who asks, how often, how much is sent. Every response, refusals included,
leaves with the same security headers and is counted. A body that is refused is never read to its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jade.config import ServeConfig
from jade.retrieval.server import replay
from jade.serve.keys import ANONYMOUS, Keyring
from jade.serve.problems import Problem
from jade.serve.tally import Tally

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""The page runs our own modules and nothing else; markup made from strings is refused by the browser."""

SECURITY_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PUBLIC = frozenset({"/", "/docs", "/health", "/healthz", "/openapi.json"})
"""Paths without data: everything else but the page's own files needs a key, where there are keys."""
PAGE = "/ui"


class Bucket:
    """An allowance that refills evenly: `per_minute` at most in one go, and as many in every minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._filled = time.monotonic()

    def take(self) -> float:
        """0 when one could be taken; otherwise the seconds until one can."""
        now = time.monotonic()
        rate = self._per_minute / 60
        self._left = min(self._per_minute, self._left + (now - self._filled) * rate)
        self._filled = now
        if self._left < 1:
            return (1 - self._left) / rate
        self._left -= 1
        return 0.0


class Guard:
    """The layer around the application."""

    def __init__(self, app: ASGIApp, config: ServeConfig, keys: Keyring, tally: Tally) -> None:
        self._app = app
        self._config = config
        self._keys = keys
        self._tally = tally
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started, status = time.perf_counter(), 499  # what is counted where nothing is sent: the client has gone

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                add_headers(message, scope["path"])
            await send(message)

        try:
            await self._pass(scope, receive, send_guarded)
        except Problem as problem:
            await problem.response()(scope, receive, send_guarded)
        finally:
            self._tally.request(_route(scope), status, time.perf_counter() - started)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        holder = self._identify(scope, headers)
        if scope["method"] == "POST":
            self._check_rate(holder)
            receive = replay(await self._body(headers, receive), receive)
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        """A web page elsewhere can make its own name point at this machine; its requests then carry that name."""
        if not self._config.is_meant(headers.get("host", "")):
            raise Problem(421, "wrong_host", "this host name is not served here: see serve.allowed_hosts")

    def _identify(self, scope: Scope, headers: Headers) -> str:
        if not self._keys or _is_public(scope["path"]):
            return ANONYMOUS
        kind, _, key = headers.get("authorization", "").partition(" ")
        holder = self._keys.holder(key.strip()) if kind.lower() == "bearer" else None
        if holder is None:
            raise Problem(401, "invalid_api_key", "a known API key is needed: Authorization: Bearer KEY")
        return holder

    def _check_rate(self, holder: str) -> None:
        if holder == ANONYMOUS or not self._config.requests_per_minute:
            return
        wait_seconds = self._buckets.setdefault(holder, Bucket(self._config.requests_per_minute)).take()
        if wait_seconds:
            limit = self._config.requests_per_minute
            raise Problem(
                429,
                "rate_limit_exceeded",
                f"this key may ask {limit} questions a minute",
                retry_seconds=int(wait_seconds) + 1,
            )

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limit = self._config.max_body_bytes
        # What is announced is refused unread; what is not, or wrongly, is counted while it is read.
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self._config.read_seconds):
                return await _read(receive, limit)
        except TimeoutError:
            raise Problem(408, "too_slow", "the request took too long to arrive") from None


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "hung_up", "the request ended before its body")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem(413, "body_too_large", f"the body is larger than {limit} bytes: send less")


def _is_public(path: str) -> bool:
    return path in PUBLIC or path == PAGE or path.startswith(f"{PAGE}/")


def _route(scope: Scope) -> str:
    """The route's pattern; what matched none is counted together."""
    route = scope.get("route")
    return getattr(route, "path", None) or (PAGE if scope["path"].startswith(PAGE) else "other")


def add_headers(message: MutableMapping[str, Any], path: str) -> None:
    headers = MutableHeaders(raw=message["headers"])
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    if "cache-control" not in headers:
        # The page's files are checked anew each time, answers are kept nowhere.
        headers["Cache-Control"] = "no-cache" if path.startswith(PAGE) else "no-store"
