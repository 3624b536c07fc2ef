"""Rejection sampling: what the team itself did in its best traces becomes examples.

Of several traces of one question only the cheapest among the best counts, malformed steps never do, and the roles keep
their own words: the prompt is rendered from what was seen, the reply is what was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jade.learn.warmstart.examples import Example
from jade.reward.outcome import outcome
from jade.team.team import Team
from jade.types import Malformed, Trace

ORIGIN = "own"


def best_examples(traces: Iterable[Trace], team: Team, min_outcome: float) -> list[Example]:
    """The well-formed steps of every question's best trace, where that is good enough."""
    return [example for trace in best_traces(traces, min_outcome) for example in _examples_of(trace, team)]


def best_traces(traces: Iterable[Trace], min_outcome: float) -> list[Trace]:
    chosen: dict[tuple[str, str, str], tuple[tuple[float, int], Trace]] = {}
    for trace in traces:
        score = (outcome(trace), -trace.usage.calls)
        known = chosen.get(trace.question.key)
        if score[0] >= min_outcome and (known is None or score > known[0]):
            chosen[trace.question.key] = (score, trace)
    return [trace for _, trace in chosen.values()]


def _examples_of(trace: Trace, team: Team) -> Iterator[Example]:
    for step in trace.steps:
        if step.role not in team.prompts:  # of a team with roles of its own: nobody here is asked what it was
            continue
        spoke = step.generation is not None and step.generation.finish == "stop" and step.error is None
        if spoke and step.generation is not None and not isinstance(step.action, Malformed):
            yield Example(team.render(step.role, step.observation), step.generation.text, ORIGIN)
