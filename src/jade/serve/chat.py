"""`/v1/chat/completions` and `/v1/models`, as OpenAI's clients speak them.

The last user message is the question; the user's and the assistant's turns before it are context. What is ours
travels in the extension field `jade`: an effort in a request, citations and the trace id in a reply, one step's
progress in a chunk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jade.config import ServeConfig
from jade.config.reward import EFFORTS
from jade.serve.desk import Desk, Request
from jade.serve.problems import READING, Problem, Shape, Text, documented, documented_stream, json_response, told_as
from jade.serve.show import show_event
from jade.serve.stream import event_stream, progress, sse, unless_gone
from jade.serve.wishes import EffortWish, Prices, Seed
from jade.types import Citation, Trace

MODEL = "jade"


class TextPart(Shape):
    type: Literal["text"]
    text: Text


class Message(Shape):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        Text | list[TextPart] | None, told_as("expected text, or a list of parts of type text: nothing else is read")
    ] = None

    def text(self) -> str:
        parts = self.content or ""
        return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


class StreamOptions(Shape):
    include_usage: bool = False


class ChatWish(Shape):
    effort: EffortWish | None = None
    """What to spend, as in `/v1/ask`; goes before `reasoning_effort`."""


class ChatRequest(Shape):
    """What is used of OpenAI's request; the rest is accepted and has no effect."""

    model: str = MODEL
    """Any name: the team of this server answers, and the reply says so."""
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    seed: Seed | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    reasoning_effort: str | None = None
    """low, medium or high say what to spend; other names have no effect."""
    jade: ChatWish | None = None
    """What only this server understands (`extra_body` of OpenAI's clients)."""

    def effort(self) -> EffortWish | None:
        if self.jade and self.jade.effort is not None:
            return self.jade.effort
        return EFFORTS.get(self.reasoning_effort or "")


class Cited(Shape):
    number: int
    node: str
    """The sub-question whose answer rests on this passage."""
    title: str
    text: str
    source: str
    holds_answer: bool


class Extension(Shape):
    trace_id: str
    citations: list[Cited]
    supported: bool
    """Whether a cited passage holds the answer."""
    rounds: int
    retrievals: int
    calls: int
    stopped: str
    """The budget that was spent before all was solved; empty when none was."""
    effort: Prices | None = None
    """The prices that the planner was told."""


class ChatUsage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ReplyMessage(Shape):
    role: Literal["assistant"] = "assistant"
    content: str


class Choice(Shape):
    index: int = 0
    message: ReplyMessage
    finish_reason: Literal["stop"] = "stop"


class ChatReply(Shape):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str = MODEL
    choices: list[Choice]
    usage: ChatUsage
    jade: Extension


class Model(Shape):
    id: str = MODEL
    object: Literal["model"] = "model"
    created: int
    owned_by: str = MODEL


class ModelList(Shape):
    object: Literal["list"] = "list"
    data: list[Model]


def chat_router(desk: Desk, config: ServeConfig) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])
    started = int(time.time())

    @router.get("/v1/models", response_model=ModelList, responses=documented(READING))
    async def list_models() -> Response:
        """The one model that is served: the team."""
        return json_response(ModelList(data=[Model(created=started)]).model_dump())

    @router.get("/v1/models/{model_id}", response_model=Model, responses=documented(READING))
    async def show_model(model_id: Annotated[str, Path(description="The model's name.")]) -> Response:
        """The served model by its name."""
        if model_id != MODEL:
            raise Problem(404, "model_not_found", f"there is one model here: {MODEL}")
        return json_response(Model(created=started).model_dump())

    @router.post("/v1/chat/completions", response_model=ChatReply, responses=documented_stream())
    async def complete(body: ChatRequest, http: HttpRequest) -> Response:
        """Ask the team; with `stream` its steps arrive as they are taken, then the answer."""
        request = read_conversation(body, config.max_context_turns)
        if body.stream:
            return event_stream(_chunks(desk, request, body))
        trace = await unless_gone(http, desk.work(request))
        return json_response(reply(trace).model_dump())

    return router


def read_conversation(body: ChatRequest, max_turns: int) -> Request:
    """The last user message and what was said before it."""
    last = max((place for place, message in enumerate(body.messages) if message.role == "user"), default=None)
    if last is None:
        raise Problem(422, "no_question", "no message of role user: the last one is the question")
    return Request(
        text=body.messages[last].text(),
        context=context_of(body.messages[:last], max_turns),
        seed=body.seed or 0,
        effort=body.effort(),
        temperature=body.temperature,
        top_p=body.top_p,
    )


def context_of(earlier: Sequence[Message], max_turns: int) -> tuple[str, ...]:
    said = [f"{m.role}: {m.text()}" for m in earlier if m.role in ("user", "assistant") and m.text()]
    return tuple(said[max(len(said) - max_turns, 0) :])


def reply(trace: Trace) -> ChatReply:
    return ChatReply(
        id=_new_id(),
        created=int(time.time()),
        choices=[Choice(message=ReplyMessage(content=trace.answer))],
        usage=_usage(trace),
        jade=extension(trace),
    )


def extension(trace: Trace) -> Extension:
    usage = trace.usage
    return Extension(
        trace_id=trace.id,
        citations=[_cited(citation) for citation in trace.citations],
        supported=trace.supported,
        rounds=usage.rounds,
        retrievals=usage.retrievals,
        calls=usage.calls,
        stopped=trace.stopped,
        effort=Prices(alpha=trace.effort.alpha, beta=trace.effort.beta) if trace.effort else None,
    )


def _cited(citation: Citation) -> Cited:
    passage = citation.passage
    return Cited(
        number=citation.number,
        node=citation.node,
        title=passage.title,
        text=passage.text,
        source=passage.source,
        holds_answer=citation.holds_answer,
    )


def _usage(trace: Trace) -> ChatUsage:
    read, written = trace.usage.prompt_tokens, trace.usage.completion_tokens
    return ChatUsage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)


async def _chunks(desk: Desk, request: Request, body: ChatRequest) -> AsyncIterator[str]:
    head = {"id": _new_id(), "object": "chat.completion.chunk", "created": int(time.time()), "model": MODEL}
    yield sse(head | _delta({"role": "assistant", "content": ""}))
    async for item in progress(desk, request):
        match item:
            case None:
                yield ": still working\n\n"
            case Problem():
                yield sse(item.body())
            case Trace():
                for piece in _last_chunks(item, head, body):
                    yield piece
            case event:
                name, data = show_event(event, desk.crew.team)
                yield sse(head | _delta({}) | {"jade": {"event": name, **_brief(name, data)}})
    yield "data: [DONE]\n\n"


def _last_chunks(trace: Trace, head: dict[str, Any], body: ChatRequest) -> list[str]:
    """The answer, the end with what it rests on, and the usage where it was asked for."""
    end = head | _delta({}, "stop") | {"jade": extension(trace).model_dump()}
    chunks = [sse(head | _delta({"content": trace.answer})), sse(end)]
    if body.stream_options and body.stream_options.include_usage:
        chunks.append(sse(head | {"choices": [], "usage": _usage(trace).model_dump()}))
    return chunks


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


_BRIEF = {
    "node": ("id", "question"),
    "solved": ("id", "question", "answer", "workflow"),
    "began": ("id", "node", "role"),
    "step": ("id", "node", "role", "title", "applied", "malformed", "error", "seconds"),
}


def _brief(name: str, data: dict[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in _BRIEF[name]}


def _new_id() -> str:
    return f"chatcmpl-{token_hex(12)}"
