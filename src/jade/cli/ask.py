"""`jade ask`: one question, its answer with citations, and the trace."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jade.cli.options import ConfigFile, Effort, Index, Model, Overrides, team_from
from jade.types import Question, Trace

if TYPE_CHECKING:
    from jade.config import Config


def command(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    index: Index = None,
    model: Model = None,
    effort: Effort = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    trace_file: Annotated[Path, typer.Option("--trace", help="Where the trace is added.")] = Path("traces.jsonl"),
    seed: Annotated[int | None, typer.Option(help="Seed of the draws. Not given: as in the config.")] = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Ask the team a question over your documents."""
    import asyncio

    from jade.engine.case import failed_if_unsearched
    from jade.engine.record import append_traces
    from jade.screen.answer import print_answer
    from jade.screen.terminal import complain

    chosen = team_from(config, settings, index=index, model=model, effort=effort)
    worked = asyncio.run(_ask(_asked(question), chosen, chosen.seed if seed is None else seed, trace_file))
    trace = failed_if_unsearched(worked)
    try:
        append_traces(trace_file, [trace])
    finally:  # an answer that cannot be kept is still an answer
        if as_json:
            typer.echo(json.dumps(_as_object(trace, trace_file), indent=2))
        elif not trace.error:
            print_answer(trace, trace_file)
    if trace.error:
        complain(f"no answer: {trace.error} (what was tried: jade trace show {shlex.quote(str(trace_file))})")
        raise typer.Exit(1)


def _asked(text: str) -> Question:
    """Bytes of the command line that are no text are replaced."""
    from jade.engine.case import ask_for
    from jade.errors import ConfigError

    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    if not readable:
        raise ConfigError('the question is empty; ask e.g. `jade ask "Who founded Ashford?" --index DIR`')
    return ask_for(readable)


async def _ask(question: Question, config: Config, seed: int, trace_file: Path) -> Trace:
    from contextlib import AsyncExitStack

    from jade.engine.effort import effort_of
    from jade.engine.solve import solve
    from jade.screen.terminal import open_screen, stoppable
    from jade.screen.tree import LiveTree
    from jade.team.crew import open_crew

    async with AsyncExitStack() as stack:
        with stoppable():
            crew = await stack.enter_async_context(open_crew(config))
        _claim(trace_file)
        with LiveTree(open_screen(stderr=True)) as tree:
            return await solve(question, crew, seed=seed, effort=effort_of(config.reward), listen=tree.hear)


def _claim(file: Path) -> None:
    """A place where nothing can be written is found out before the work, not after it."""
    from jade.engine.record import check_holds_traces
    from jade.errors import ConfigError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    except OSError as error:
        reason = f"--trace {file}: {error.strerror}"
        raise ConfigError(f"{reason}; name another file, or {os.devnull} to keep none") from None
    if file.is_file():
        check_holds_traces(file)


def _as_object(trace: Trace, file: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from jade.engine.record import trace_to_json

    said = {"file": str(file), "supported": trace.supported, "stopped": trace.stopped, "error": trace.error}
    return {
        "answer": trace.answer,
        "citations": [asdict(citation) for citation in trace.citations],
        "nodes": [asdict(node) for node in trace.nodes],
        "usage": asdict(trace.usage),
        "trace": said | trace_to_json(trace),
    }
