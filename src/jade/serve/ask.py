"""`POST /v1/ask`: our own form of asking, with everything the team did; streamed, every step in full."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jade.config import ServeConfig
from jade.engine.record import trace_to_json
from jade.serve.desk import Desk, Request
from jade.serve.problems import Problem, Shape, Text, documented_stream, json_response
from jade.serve.show import show_event, show_trace
from jade.serve.stream import event_stream, progress, sse, unless_gone
from jade.serve.wishes import EffortWish, Seed
from jade.types import Trace


class AskRequest(Shape):
    question: Text
    context: list[Text] = Field(default_factory=list)
    """Earlier turns of the conversation, oldest first."""
    seed: Seed = 0
    effort: EffortWish | None = None
    """What to spend: low, medium, high, a number from 0 to 1, or prices; a team trained with `reward.dial` heeds it."""
    stream: bool = False
    """Server-sent events: node, began, step, solved; then answer or error."""


class AskReply(Shape):
    trace_id: str
    answer: str
    supported: bool
    stopped: str
    citations: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    usage: dict[str, Any]
    trace: dict[str, Any]
    """The whole trace, as it is written to disk."""


def ask_router(desk: Desk, config: ServeConfig) -> APIRouter:
    router = APIRouter(tags=["JADE"])

    @router.post("/v1/ask", response_model=AskReply, responses=documented_stream())
    async def ask(body: AskRequest, http: HttpRequest) -> Response:
        """Ask the team and get all it did."""
        request = _request(body, config.max_context_turns)
        if body.stream:
            return event_stream(_events(desk, request))
        return json_response(describe_answer(await unless_gone(http, desk.work(request))))

    return router


def describe_answer(trace: Trace) -> dict[str, Any]:
    """The answer, what it rests on, and all that was done."""
    return {
        "trace_id": trace.id,
        "answer": trace.answer,
        "supported": trace.supported,
        "stopped": trace.stopped,
        "citations": [asdict(citation) for citation in trace.citations],
        "nodes": [asdict(node) for node in trace.nodes],
        "usage": asdict(trace.usage),
        "trace": trace_to_json(trace),
    }


def _request(body: AskRequest, max_turns: int) -> Request:
    context = tuple(body.context[max(len(body.context) - max_turns, 0) :])
    return Request(body.question, context, body.seed, body.effort)


async def _events(desk: Desk, request: Request) -> AsyncIterator[str]:
    team = desk.crew.team
    async for item in progress(desk, request):
        match item:
            case None:
                yield ": still working\n\n"
            case Problem():
                yield sse(item.body()["error"], "error")
            case Trace():
                yield sse(show_trace(item, team, desk.reward), "answer")
            case event:
                name, data = show_event(event, team)
                yield sse(data, name)
