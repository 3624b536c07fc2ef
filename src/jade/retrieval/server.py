"""A retriever as an HTTP server that speaks Search-R1's protocol. Bad requests get one clear line, never a trace.

POST /retrieve    see `wire`
GET  /health      {"status": "ok", ...}
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, StringConstraints
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jade.config import ServeConfig
from jade.errors import JadeError
from jade.retrieval.base import Retriever
from jade.retrieval.wire import ROUTE, to_result


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one request may ask."""

    body_bytes: int = 1_000_000
    queries: int = 1024
    query_chars: int = 10_000
    topk: int = 1000


def make_app(
    retriever: Retriever,
    *,
    k: int = 5,
    limits: ServerLimits | None = None,
    about: Mapping[str, Any] | None = None,
    serve: ServeConfig | None = None,
) -> FastAPI:
    """The application. It owns the retriever and closes it when the server stops. Whom it turns away by the name that
    they call, `serve` says; without it, who listens has to see to that."""
    limits = limits or ServerLimits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await retriever.close()

    query = Annotated[StrictStr, StringConstraints(max_length=limits.query_chars)]

    class Body(BaseModel):
        model_config = ConfigDict(extra="ignore")
        queries: Annotated[list[query], Field(max_length=limits.queries)]
        topk: Annotated[StrictInt, Field(ge=1, le=limits.topk)] | None = None
        return_scores: StrictBool = False

    app = FastAPI(title="JADE retrieval", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(BodyLimit, most_bytes=limits.body_bytes)
    if serve:
        app.add_middleware(Doorman, serve=serve)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(JadeError, _apologise)

    async def retrieve(body: Body) -> JSONResponse:
        found = await retriever.search(body.queries, body.topk or k)
        return JSONResponse({"result": [to_result(passages, body.return_scores) for passages in found]})

    async def health() -> dict[str, Any]:
        return {"status": "ok", **(about or {})}

    retrieve.__annotations__["body"] = Body  # FastAPI cannot see a local class through a deferred annotation
    app.post(ROUTE)(retrieve)
    app.get("/health")(health)
    return app


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    """What is wrong with the body, and where, without repeating it."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()[:5]]
    return JSONResponse({"error": "; ".join(lines)}, status_code=422)


async def _apologise(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=503)


class Doorman:
    """Refuses requests that are meant for another host: the pages of a web site could read the documents otherwise."""

    def __init__(self, app: ASGIApp, serve: ServeConfig) -> None:
        self._app = app
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._serve.is_meant(Headers(scope=scope).get("host", "")):
            refusal = JSONResponse({"error": "this host name is not served here: see serve.allowed_hosts"}, 421)
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


class BodyLimit:
    """Refuses bodies over a size, announced or not, before they fill memory."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most_bytes:
                refusal = JSONResponse({"error": f"body larger than {self._most_bytes:,} bytes"}, status_code=413)
                await refusal(scope, receive, send)
                return
        await self._app(scope, replay(bytes(body), receive), send)


def replay(body: bytes, receive: Receive) -> Receive:
    """The body that was already read, then whatever the connection says next."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message
