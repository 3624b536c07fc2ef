"""What the answers of a batch are worth: F1 as published, another measure by its name, or a function of one's own.

A measure takes traces and gives a number for each. The number stays on the trace, so that rewards, figures and credit
rules read the same one, and a measure that is slow or not the same twice is asked once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import TypeAlias

from jade.errors import ConfigError
from jade.learn.ranks import agree, is_first
from jade.outside import load_function
from jade.reward.metrics import accuracy, exact_match
from jade.reward.outcome import outcome
from jade.types import Trace

Measure: TypeAlias = Callable[[Sequence[Trace]], Sequence[float]]
SETTING = "reward.outcome"
PUBLISHED = "f1"


def by_f1(traces: Sequence[Trace]) -> list[float]:
    return [outcome(trace) for trace in traces]


def by_exact_match(traces: Sequence[Trace]) -> list[float]:
    return [exact_match(trace.answer, trace.question.answers) for trace in traces]


def by_accuracy(traces: Sequence[Trace]) -> list[float]:
    return [accuracy(trace.answer, trace.question.answers) for trace in traces]


MEASURES: dict[str, Measure] = {PUBLISHED: by_f1, "exact_match": by_exact_match, "accuracy": by_accuracy}


def find_measure(name: str) -> Measure:
    """A shipped measure, or one's own as `package.module:function` or `file.py:function`."""
    measure: Measure = MEASURES.get(name) or load_function(SETTING, name, MEASURES)
    return measure


async def measured(traces: Sequence[Trace], measure: Measure) -> list[Trace]:
    """The traces with what their answers are worth. Of several processes the first one asks: another might be told
    otherwise."""
    worth = agree(await ask(traces, measure) if is_first() else [])
    return [replace(trace, outcome=each) for trace, each in zip(traces, worth, strict=True)]


async def ask(traces: Sequence[Trace], measure: Measure) -> list[float]:
    """What each answer is worth; nobody is asked about a question that failed. In a thread: it may wait for a judge."""
    sound = [trace for trace in traces if trace.error is None]
    worth = iter(await asyncio.to_thread(_ask, sound, measure) if sound else ())
    return [0.0 if trace.error is not None else next(worth) for trace in traces]


def _ask(traces: Sequence[Trace], measure: Measure) -> list[float]:
    """The measure may be somebody's own: numbers for other traces than there are would reward the wrong ones."""
    worth = [float(each) for each in measure(traces)]
    name = f"{SETTING}: {getattr(measure, '__name__', measure)!r}"
    if len(worth) != len(traces):
        raise ConfigError(f"{name} gave {len(worth)} numbers for {len(traces)} traces")
    for trace, each in zip(traces, worth, strict=True):
        if not isfinite(each):
            raise ConfigError(f"{name} gave {each} for question {trace.question.id} ({trace.question.text[:60]!r})")
    return worth
