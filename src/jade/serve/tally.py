"""What the server counts, in the text form that Prometheus reads.

Labels come from the program (routes, statuses, outcomes), never from a request, so their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from jade.types import Usage

BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Durations, sorted into fixed buckets."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.total_seconds += seconds

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        bounds = [*map(str, BUCKETS_SECONDS), "+Inf"]
        # Prometheus wants each bucket to hold those below it as well.
        for bound, count in zip(bounds, accumulate(self.counts), strict=True):
            yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)
        yield _line(f"{name}_sum", labels, self.total_seconds)
        yield _line(f"{name}_count", labels, sum(self.counts))


class Tally:
    """The counters of one server."""

    def __init__(self) -> None:
        self.requests: Counter[Labels] = Counter()
        self.questions: Counter[Labels] = Counter()
        self.spent: Counter[Labels] = Counter()
        self.seconds: dict[Labels, Histogram] = {}
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        self.requests[(("route", route), ("status", str(status)))] += 1
        self.seconds.setdefault((("route", route),), Histogram()).add(seconds)

    def question(self, outcome: str, usage: Usage | None = None) -> None:
        """One question's end: answered, failed, timeout, cancelled or refused."""
        self.questions[(("outcome", outcome),)] += 1
        if usage:
            self.spent[(("kind", "calls"),)] += usage.calls
            self.spent[(("kind", "retrievals"),)] += usage.retrievals
            self.spent[(("kind", "prompt_tokens"),)] += usage.prompt_tokens
            self.spent[(("kind", "completion_tokens"),)] += usage.completion_tokens

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """A value that is read when somebody looks."""
        self.gauges[name] = (meaning, read)

    def text(self) -> str:
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield from _counter("jade_requests_total", "Requests by route and status.", self.requests)
        yield from _head("jade_request_seconds", "Time from request to the end of the response.", "histogram")
        for labels, histogram in self.seconds.items():
            yield from histogram.lines("jade_request_seconds", labels)
        yield from _counter("jade_questions_total", "Questions by how they ended.", self.questions)
        yield from _counter("jade_spent_total", "Calls, retrievals and tokens of answered questions.", self.spent)
        for name, (meaning, read) in self.gauges.items():
            yield from _head(name, meaning, "gauge")
            yield _line(name, (), read())


def _counter(name: str, meaning: str, counts: Mapping[Labels, int]) -> Iterator[str]:
    yield from _head(name, meaning, "counter")
    for labels, count in counts.items():
        yield _line(name, labels, count)


def _head(name: str, meaning: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"
