"""The viewer's data: runs, their questions, single traces, comparisons and training curves. Reading only.

These endpoints are plain functions, so that reading files happens in threads beside the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from jade.errors import TraceUnreadable
from jade.serve.curves import read_curves
from jade.serve.library import Library, Run
from jade.serve.problems import READING, Problem, Shape, documented, json_response
from jade.serve.query import Change, Filter, Sort, compare_summary, facets, pair_up, select, summary
from jade.serve.show import show_trace
from jade.team.team import Team

MAX_ROWS = 500
Count = Annotated[int, Query(ge=0, le=10**12)]
Limit = Annotated[int, Query(ge=0, le=MAX_ROWS)]
Word = Annotated[str, Query(max_length=400)]
RunName = Annotated[str, Path(description="A run's name, from /v1/runs.")]


class RunList(Shape):
    runs: list[dict[str, Any]]
    team: bool
    """Whether questions can be asked here."""


class RowPage(Shape):
    total: int
    matched: int
    complete: bool
    """Whether all of the run has been read; if not, ask again."""
    place: int | None
    """Where the asked key stands; null when it is not among the rows."""
    summary: dict[str, Any]
    facets: dict[str, list[list[Any]]]
    """What there is to filter by, with counts; on the first page only."""
    rows: list[dict[str, Any]]


class PairPage(Shape):
    matched: int
    place: int | None
    """Where the asked question stands; null when it is not among the pairs."""
    summary: dict[str, Any]
    pairs: list[dict[str, Any]]


class CurvePage(Shape):
    rows: list[dict[str, Any]]
    next: int
    """Ask for what comes `after` this."""
    restarted: bool
    """The journal was cut back (a resumed run): forget what came before."""
    more: bool


def wanted(
    q: Word = "",
    dataset: Word = "",
    part: Word = "",
    verdict: Literal["", "right", "wrong", "unscored"] = "",
    workflow: Word = "",
    flag: Literal["", "malformed", "error", "stopped", "unsupported"] = "",
    min_rounds: Count = 0,
    min_retrievals: Count = 0,
    min_tokens: Count = 0,
) -> Filter:
    return Filter(q, dataset, part, verdict, workflow, flag, min_rounds, min_retrievals, min_tokens)


def browse_router(library: Library, team: Team, *, has_team: bool) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["viewer"], responses=documented(READING))
    _add_lists(router, library, has_team)
    _add_single(router, library, team)
    return router


def _add_lists(router: APIRouter, library: Library, has_team: bool) -> None:
    """Runs, their rows, and the rows of two runs together."""

    @router.get("/runs", response_model=RunList)
    def list_runs() -> Response:
        """All that can be looked at."""
        return json_response({"runs": [_show_run(run) for run in library.runs()], "team": has_team})

    @router.get("/runs/{run}/rows", response_model=RowPage)
    def list_rows(
        run: RunName,
        filter: Annotated[Filter, Depends(wanted)],
        sort: Sort = "order",
        descending: bool = False,
        offset: Count = 0,
        limit: Limit = 100,
        key: Word = "",
    ) -> Response:
        """The questions of a run that a filter keeps; with `key`, also where that one stands among them."""
        shelf = _find(library, run).shelf
        with _reading():
            rows = select(shelf, filter, sort, descending=descending)
        page = [row.show() for row in rows[offset : offset + limit]]
        every = shelf.rows
        figures = {"summary": summary(rows), "facets": {} if offset else facets(every)}
        place = _place([row.key for row in rows], key) if key else None
        known = {"total": len(every), "matched": len(rows), "complete": shelf.is_complete, "place": place}
        return json_response({**known, **figures, "rows": page})

    @router.get("/compare", response_model=PairPage)
    def compare(
        before: Word,
        after: Word,
        filter: Annotated[Filter, Depends(wanted)],
        change: Change = "all",
        offset: Count = 0,
        limit: Limit = 100,
        question: Word = "",
    ) -> Response:
        """Two runs set against each other, question by question; with `question`, also where that name stands."""
        old, new = _find(library, before).shelf, _find(library, after).shelf
        with _reading():
            old.look(to_the_end=True)
            pairs = pair_up(select(old, filter), new.look(to_the_end=True))
        shown = [pair for pair in pairs if change in ("all", pair.change)]
        page = [pair.show() for pair in shown[offset : offset + limit]]
        place = _place([pair.name for pair in shown], question)
        known = {"matched": len(shown), "place": place, "summary": compare_summary(pairs)}
        return json_response({**known, "pairs": page})


def _add_single(router: APIRouter, library: Library, team: Team) -> None:
    """What there is to see of one trace and of one training run."""

    @router.get("/runs/{run}/traces/{key:path}", response_model=dict[str, Any])
    def read_trace(run: RunName, key: Annotated[str, Path(description="A row's key.")]) -> Response:
        """One trace, complete, as the viewer shows it."""
        found = _find(library, run)
        try:
            with _reading():
                trace = found.shelf.trace(key)
        except KeyError:
            raise Problem(404, "no_trace", "this run has no trace of that key") from None
        with _reading(*MISSHAPEN):
            return json_response({"run": run, "key": key, **show_trace(trace, team, found.reward_of(key))})

    @router.get("/runs/{run}/curves", response_model=CurvePage)
    def curves(run: RunName, after: Count = 0) -> Response:
        """What a training run has written down since."""
        metrics = _find(library, run).metrics
        if metrics is None:
            raise Problem(404, "no_curves", "this is not a training run")
        with _reading():
            return json_response(read_curves(metrics, after))


def _place(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None


def _find(library: Library, name: str) -> Run:
    run = library.run(name)
    if run is None:
        raise Problem(404, "no_run", "there is no run of that name here")
    return run


def _show_run(run: Run) -> dict[str, Any]:
    return {"name": run.name, "title": run.title, "group": run.group, "kind": run.kind}


MISSHAPEN = (TypeError, AttributeError, ValueError, KeyError, IndexError)
"""What showing a trace may end in whose fields are not of their types; only a foreign hand writes such."""


@contextmanager
def _reading(*broken: type[Exception]) -> Iterator[None]:
    """A file that cannot be read is told to whoever looks, not to the log alone."""
    try:
        yield
    except TraceUnreadable as error:
        raise Problem(422, "unreadable", str(error)) from None
    except broken as error:
        raise Problem(422, "unreadable", f"not a trace: {type(error).__name__}") from None
