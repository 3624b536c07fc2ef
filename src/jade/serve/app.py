"""The server as one ASGI application: the API, the viewer's data, the page, and the guard around it all."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from jade.config import ServeConfig
from jade.serve.ask import ask_router
from jade.serve.browse import browse_router
from jade.serve.chat import chat_router
from jade.serve.desk import Desk
from jade.serve.guard import Guard
from jade.serve.keys import Keyring
from jade.serve.library import Library
from jade.serve.problems import Problem, Shape, documented, json_response
from jade.serve.tally import Tally
from jade.team.team import Team

PAGE_FOLDER = Path(__file__).with_name("page")


class Health(Shape):
    status: str
    version: str
    team: bool
    """Whether questions can be asked here."""


def build_app(
    config: ServeConfig, keys: Keyring, tally: Tally, library: Library, team: Team, *, desk: Desk | None = None
) -> ASGIApp:
    """The application. Without a desk it shows what the library has and answers no questions."""
    app = FastAPI(title="JADE", version=_version(), docs_url=None, redoc_url=None)
    if desk:
        app.include_router(chat_router(desk, config))
        app.include_router(ask_router(desk, config))
    app.include_router(browse_router(library, team, has_team=desk is not None))
    _add_service(app, tally, has_team=desk is not None)
    _add_page(app)
    _add_problems(app)
    return _with_cors(Guard(app, config, keys, tally), config)


def _add_service(app: FastAPI, tally: Tally, *, has_team: bool) -> None:
    # HEAD as well: what watches over servers often asks so. Of two names for the same one is documented.
    @app.head("/health", include_in_schema=False)
    @app.head("/healthz", include_in_schema=False)
    @app.get("/health", include_in_schema=False)
    @app.get("/healthz", response_model=Health, responses=documented((405,)), tags=["service"])
    async def healthz() -> Response:
        """Whether the server is up."""
        return json_response({"status": "ok", "version": app.version, "team": has_team})

    @app.get("/metrics", response_class=PlainTextResponse, responses=documented((401, 405)), tags=["service"])
    async def metrics() -> Response:
        """Counters in Prometheus' text form."""
        return PlainTextResponse(tally.text(), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return RedirectResponse("/ui/")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(PAGE_FOLDER / "docs.html")

    app.mount("/ui", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")


def _add_problems(app: FastAPI) -> None:
    async def on_problem(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_invalid(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _invalid(error.errors()).response()

    async def on_http(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        unknown = error.status_code == 404
        message = "nothing answers at this address: /docs tells what does" if unknown else str(error.detail)
        problem = Problem(error.status_code, f"http_{error.status_code}", message)
        response = problem.response()
        response.headers.update(error.headers or {})
        return response

    async def on_crash(_: HttpRequest, error: Exception) -> Response:
        return Problem(
            500, "internal", f"internal error: {type(error).__name__}; the server's log says more"
        ).response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(Exception, on_crash)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def _invalid(errors: Any) -> Problem:
    """The first thing that does not fit: where it is and what is expected, never what was sent."""
    first: Mapping[str, Any] = errors[0]
    if first["type"] == "json_invalid":
        return Problem(400, "not_json", "the body is not JSON")
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier())
    return Problem(422, "invalid_request", f"{place[:200]}: {first['msg']}")


def _with_cors(app: ASGIApp, config: ServeConfig) -> ASGIApp:
    """Around the guard, so that pages which may call the API can also read its refusals."""
    if not config.cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(config.cors_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
    )


def _version() -> str:
    try:
        return version("jade-team")
    except PackageNotFoundError:
        return "0"
