"""How long a GPU takes for something, which kernels are slowest meanwhile, and when it has nothing to do."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch

SLOWEST = 12
REPEATS = 20
LONG_GAP = 1e6
"""Nanoseconds for which a device waits because the host did not come in time, not because launches take their time."""
Span = tuple[str, int, int]
"""What ran, and from when to when, in nanoseconds."""


def milliseconds_of(work: Callable[[], object]) -> float:
    """The median of several, after a first one that also compiles."""
    work()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    took: list[float] = [start.elapsed_time(end) for start, end in pairwise(marks)]
    return statistics.median(took)


def profiled(work: Callable[[], Any]) -> dict[str, Any]:
    """Run this once more and tell what the device did. Writing down every launch slows the host; the device it does
    not, so `kernel_seconds` may be held against the seconds of a run that was not looked at."""
    started = time.perf_counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    # Not by `key_averages`, which takes minutes for a hundred thousand launches.
    results: Any = profiler.profiler
    spans = [
        (event.name(), event.start_ns(), event.start_ns() + event.duration_ns())
        for event in results.kineto_results.events()
        if event.device_type().name == "CUDA"
    ]
    return {"profiled_seconds": round(seconds, 3), **summary(spans)}


def summary(spans: Iterable[Span]) -> dict[str, Any]:
    """Seconds in which anything ran, launches, long gaps between them, and milliseconds and launches of the slowest."""
    nanoseconds: defaultdict[str, int] = defaultdict(int)
    launches: defaultdict[str, int] = defaultdict(int)
    busy, gaps, now = 0, [], 0
    for name, start, stop in sorted(spans, key=lambda span: span[1]):
        nanoseconds[name] += stop - start
        launches[name] += 1
        if now and start - now > LONG_GAP:
            gaps.append(start - now)
        busy += max(0, stop - max(start, now))
        now = max(now, stop)
    slowest = sorted(nanoseconds, key=lambda name: -nanoseconds[name])[:SLOWEST]
    return {
        "kernel_seconds": round(busy / 1e9, 3),
        "launches": sum(launches.values()),
        "long_gaps": len(gaps),
        "long_gap_seconds": round(sum(gaps) / 1e9, 3),
        "slowest_milliseconds": {name[:90]: [round(nanoseconds[name] / 1e6, 1), launches[name]] for name in slowest},
    }
