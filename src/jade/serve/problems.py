"""What a request can be refused for: one value with its HTTP status, one JSON shape for all of them.

The shape is the one that OpenAI's clients read: `{"error": {"message", "type", "code"}}`. Messages never repeat
what was sent, so nothing a stranger wrote comes back and no key reaches a log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError
from starlette.responses import Response


class Problem(Exception):
    """A request that is not going to be answered, and why."""

    def __init__(self, status: int, code: str, message: str, *, retry_seconds: int = 0, trace_id: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_seconds = retry_seconds
        self.trace_id = trace_id

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        trace = {"trace_id": self.trace_id} if self.trace_id else {}
        return {"error": {"message": self.message, "type": kind, "code": self.code, **trace}}

    def response(self) -> Response:
        headers = {"Retry-After": str(self.retry_seconds)} if self.retry_seconds else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return json_response(self.body(), self.status, headers)


def _whole(text: str) -> str:
    """JSON can spell half of a character, which nothing after us could write down again."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair stands alone") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
"""Text that a request brings."""


def told_as(expected: str) -> WrapValidator:
    """Where several forms are taken: what is said to whoever sends none of them. Otherwise only the first is named."""

    def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError as error:
            if any(each["type"] == "value_error" for each in error.errors()):
                raise  # the form was one of them, and what it held was not right
            raise PydanticCustomError("none_of_the_forms", "{expected}", {"expected": expected}) from None

    return WrapValidator(check)


class Shape(BaseModel):
    """Something that travels as JSON; its fields' docstrings appear in the OpenAPI document."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ProblemDetail(Shape):
    message: str
    """What is wrong and what to do about it."""
    type: str
    """`invalid_request_error` or `server_error`."""
    code: str
    """A short name of the reason."""
    trace_id: str = ""
    """The trace of a question that failed while being worked."""


class ProblemBody(Shape):
    """The body of every response that is not a success."""

    error: ProblemDetail


_MEANINGS = {
    400: "The body is not JSON",
    401: "No key, or one that is not known",
    404: "There is no such thing here",
    405: "Another method is meant",
    408: "The request took too long to arrive",
    413: "The body or the question is too long",
    422: "The request does not fit the schema",
    429: "This key has asked too much in the last minute",
    502: "The model or the index did not answer",
    503: "Too many questions are waiting",
    504: "The question took too long",
}
READING = (400, 401, 404, 405, 422)
"""What a request to look at something may be answered with."""
WORKING = tuple(_MEANINGS)
"""What a question may be answered with."""


def documented(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of the problems an endpoint may have."""
    return {status: {"model": ProblemBody, "description": _MEANINGS[status]} for status in statuses}


def documented_stream() -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of an endpoint that works a question and may answer with a stream."""
    events = {"text/event-stream": {"schema": {"type": "object"}}}
    return {200: {"content": events, "description": "The answer, or its events as they come"}, **documented(WORKING)}


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in ASCII, so that also broken Unicode from a model or a file can be sent."""
    return Response(to_json(content).encode(), status, headers, media_type="application/json")


def to_json(content: Any) -> str:
    """One line. A number that is not finite becomes null, because JSON has no other word for it."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(content), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value
