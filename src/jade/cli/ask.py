"""`jade ask`: one question, its answer with citations, and the trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from jade.cli.options import ConfigFile, Index, Model, Overrides, config_from
from jade.types import Question, Trace


def command(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    index: Index = None,
    model: Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    trace_file: Annotated[Path, typer.Option("--trace", help="Where the trace is added.")] = Path("traces.jsonl"),
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Ask the team a question over your documents."""
    import asyncio

    from jade.engine.record import append_traces, trace_to_json

    chosen = config_from(config, settings, index=index, model=model)
    trace = asyncio.run(_ask(question, chosen, seed))
    append_traces(trace_file, [trace])
    if as_json:
        typer.echo(json.dumps(_as_object(trace, trace_file, trace_to_json(trace)), ensure_ascii=False, indent=2))
    else:
        print_answer(trace, trace_file)
    if trace.error:
        raise typer.Exit(1)


async def _ask(question: str, config: Any, seed: int) -> Trace:
    from hashlib import blake2b

    from rich.console import Console

    from jade.cli.tree import LiveTree
    from jade.engine.solve import solve
    from jade.team.crew import open_crew

    number = blake2b(question.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    async with open_crew(config) as crew:
        with LiveTree(Console(stderr=True)) as tree:
            return await solve(Question(number, question), crew, seed=seed, listen=tree.hear)


def _as_object(trace: Trace, file: Path, whole: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "answer": trace.answer,
        "supported": trace.supported,
        "citations": [asdict(citation) for citation in trace.citations],
        "nodes": [asdict(node) for node in trace.nodes],
        "usage": asdict(trace.usage),
        "trace": {"file": str(file), **whole},
    }


def print_answer(trace: Trace, trace_file: Path | None = None) -> None:
    """The answer, what it rests on, what it cost and the tree."""
    from rich.console import Console
    from rich.text import Text

    from jade.cli.tree import clip, render_trace

    console = Console()
    console.print(render_trace(trace))
    console.print()
    console.print(Text("Answer: ", style="bold") + Text(trace.answer or "none", style="bold green"))
    if not trace.supported:
        console.print(Text("No document that was found supports this answer.", style="yellow"))
    if trace.error:
        console.print(Text(f"The team failed: {trace.error}", style="red"))
    if trace.stopped:
        console.print(Text(f"Stopped early: the budget of {trace.stopped} was spent.", style="yellow"))
    for citation in trace.citations:
        mark = "✓" if citation.holds_answer else " "
        passage = citation.passage
        line = f"[{citation.number}] {mark} {citation.node}: {passage.title} ({passage.source or passage.id})"
        console.print(Text(line, style="" if citation.holds_answer else "dim"), soft_wrap=True)
        console.print(Text(f"      {clip(passage.text, 140)}", style="dim"), soft_wrap=True)
    usage = trace.usage
    console.print(
        Text(
            f"{usage.calls} calls, {usage.rounds} rounds, {usage.retrievals} retrievals, "
            f"{usage.prompt_tokens}+{usage.completion_tokens} tokens, {usage.seconds:.1f} s"
            + (f"; trace in {trace_file}" if trace_file else ""),
            style="dim",
        ),
        soft_wrap=True,
    )
