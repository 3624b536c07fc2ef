"""A finished question on the screen: the tree, the answer, what it rests on, what it cost.

For each solved node the passages that hold its answer are shown, and where none does the best one; the others that
were read are only counted, since a wide split reads dozens. Numbers are those of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from rich.text import Text

from jade.engine.budget import has_failed
from jade.screen.terminal import foreign, open_screen
from jade.screen.tree import clip, render_trace
from jade.types import Citation, Trace


def print_answer(trace: Trace, trace_file: Path | None = None, *, everything: bool = False) -> None:
    """`everything` adds each step's raw text, and every passage that was read."""
    with open_screen() as console:  # at once: in a notebook every print is an output of its own
        console.print(render_trace(trace, outputs=everything))
        console.print()
        console.print(foreign("Answer: ", "bold") + foreign(trace.answer or "none", "bold green"), soft_wrap=True)
        for line in (*_doubts(trace), *_citations(trace, everything), _cost(trace, trace_file)):
            console.print(line, soft_wrap=True)


def _doubts(trace: Trace) -> Iterator[Text]:
    if trace.answer and not trace.supported:
        yield foreign("No document that was found supports this answer.", "yellow")
    elif not trace.supported:
        yield foreign("Nothing that was found answers this question.", "yellow")
    failed = [step.error for step in trace.steps if step.error and has_failed(step)]
    if trace.error:
        yield foreign(f"The team failed: {trace.error}", "red")
    elif failed:
        yield foreign(f"{len(failed)} of {len(trace.steps)} steps failed; the first: {failed[0]}", "red")
    if trace.stopped:
        yield foreign(f"Stopped early: the budget of {trace.stopped} was spent.", "yellow")


def _citations(trace: Trace, everything: bool) -> Iterator[Text]:
    for node, group in groupby(trace.citations, attrgetter("node")):
        cited = list(group)
        shown = cited if everything else _supporting(cited)
        for citation in shown:
            yield from _citation(citation)
        if len(shown) < len(cited):
            yield foreign(f"      {node}: {len(cited) - len(shown)} more read", "dim")


def _supporting(cited: Sequence[Citation]) -> Sequence[Citation]:
    return [citation for citation in cited if citation.holds_answer] or cited[:1]


def _citation(citation: Citation) -> Iterator[Text]:
    """Two lines: where the passage stands (a tick when it holds its node's answer), and how it begins."""
    mark, passage = "✓" if citation.holds_answer else " ", citation.passage
    where = clip(passage.source or passage.id)
    place = f"{clip(passage.title)} ({where})" if passage.title.strip() else where
    yield foreign(f"[{citation.number}] {mark} {citation.node}: {place}", "" if citation.holds_answer else "dim")
    yield foreign(f"      {clip(passage.text, 140)}", "dim")


def _cost(trace: Trace, trace_file: Path | None) -> Text:
    usage = trace.usage
    return foreign(
        f"{usage.calls} calls, {usage.rounds} rounds, {usage.retrievals} retrievals, "
        f"{usage.prompt_tokens}+{usage.completion_tokens} tokens, {usage.seconds:.1f} s"
        + (f"; trace in {trace_file}" if trace_file else ""),
        "dim",
    )
