"""Work a question again from its trace: the same generations and passages, and no model or index.

A generation is found by the seed its step was sampled with, a search by its query. What failed fails again, in the
same words. Tools from outside the package, and the clock, are not part of a trace: those tools run again, and a
budget of seconds is counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from jade.engine.seeds import derive_seed
from jade.errors import BackboneFailed, JadeError, RetrievalFailed
from jade.team.crew import Cast, Crew
from jade.types import Generation, Passage, Prompt, Role, Sampling, Step, Trace


class ReplayBackbone:
    """Says again what was said in the traces."""

    def __init__(self, traces: Iterable[Trace]) -> None:
        self._steps = {
            derive_seed(trace.seed, trace.question.id, step.id): step for trace in traces for step in trace.steps
        }

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        step = self._steps.get(sampling.seed)
        if step is None or step.role != prompt.role:
            raise BackboneFailed(f"no call of {prompt.role} with this seed is recorded: the trace is of another team")
        if step.generation is None:
            raise _as_it_was(BackboneFailed, step)
        return step.generation

    async def close(self) -> None:
        return None


class ReplayRetriever:
    """Finds again what was found in the traces; where a search came back only some of the times, what it brought."""

    def __init__(self, traces: Iterable[Trace]) -> None:
        searches = [step for trace in traces for step in trace.steps if step.role == Role.RETRIEVAL]
        failed = {step.observation.question: step for step in searches if step.error}
        self._searches = failed | {step.observation.question: step for step in searches if not step.error}

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._search(query)[:k] for query in queries]

    def _search(self, query: str) -> list[Passage]:
        step = self._searches.get(query)
        if step is None:
            raise RetrievalFailed(f"no search for {query!r} is recorded: the trace is of another team or index")
        if step.error:
            raise _as_it_was(RetrievalFailed, step)
        return list(step.found)

    async def close(self) -> None:
        return None


def replay_crew(traces: Sequence[Trace], crew: Crew) -> Crew:
    """The crew, with recorded voices and findings in the place of its models and its index."""
    return replace(crew, cast=Cast(ReplayBackbone(traces)), retriever=ReplayRetriever(traces))


def _as_it_was(kind: type[JadeError], step: Step) -> JadeError:
    """An error that a trace words as the recorded one: of a class with the same name."""
    name, _, message = (step.error or "").partition(": ")
    same_name: type[JadeError] = type(name, (kind,), {})
    return same_name(message)
