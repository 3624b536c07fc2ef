"""How sure a number is: bootstrap intervals and paired bootstrap p-values, seeded, over questions.

The mean over several benchmarks is the mean of their means, whatever their sizes; there each benchmark is resampled
within itself. Formulas after Efron and Tibshirani (1993), chapters 13 and 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# G = groups, S = resamples, N = questions
Floats: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = Mapping[str, Floats]
"""Benchmarks by name, each with a score for every question."""
RESAMPLES = 10_000
LEVEL = 0.95
_CHUNK = 2_000_000
"""Indices drawn at once: bounds the memory, not the result's quality."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two means lie apart, with the interval of that and its two-sided p-value."""

    mean: float
    low: float
    high: float
    p_value: float


def estimate(groups: Groups, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The mean of the groups' means with its percentile interval."""
    return Estimate(mean_of_means(groups), *_interval(resampled_means(groups, resamples, seed)))


def compare(ours: Groups, theirs: Groups, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """What the first has over the second on the same questions, question by question.

    The p-value says how often chance alone gives a difference this large, in either direction: the differences are
    shifted to mean 0, which is what holds if the two are equally good, and resampled. Shifting commutes with taking
    means, so one set of resamples serves the interval and the p-value.
    """
    differences = minus(ours, theirs)
    mean = mean_of_means(differences)
    means_S = resampled_means(differences, resamples, seed)
    # A hair's breadth of slack: equal means must count as equal whatever the order of summation.
    as_large = np.count_nonzero(np.abs(means_S - mean) >= abs(mean) - 1e-12)
    return Difference(mean, *_interval(means_S), float((as_large + 1) / (resamples + 1)))


def minus(ours: Groups, theirs: Groups) -> Groups:
    """What the first has over the second, question by question."""
    return {name: ours[name] - theirs[name] for name in ours}


def _interval(means_S: Floats) -> tuple[float, float]:
    """The middle of the resamples, `LEVEL` of them."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means_S, [tail, 1 - tail])
    return float(low), float(high)


def mean_of_means(groups: Groups) -> float:
    return float(np.mean([group.mean() for group in groups.values()]))


def resampled_means(groups: Groups, resamples: int, seed: int) -> Floats:
    """The mean of means of each resample: questions drawn with replacement within each group.

    A group's draws follow from its name: whatever is measured on it meets the same resamples, and no two groups do.
    """
    # As bytes: results are kept by what was asked for, and an array cannot be such a key.
    means_GS = [_resampled(name, group.tobytes(), resamples, seed) for name, group in groups.items()]
    return np.array(np.mean(means_GS, axis=0))


@lru_cache(maxsize=1024)
def _resampled(name: str, scores: bytes, resamples: int, seed: int) -> Floats:
    """The mean of one group in each resample; kept, because every mean over benchmarks asks for it again."""
    source = np.random.default_rng([seed, *name.encode()])
    return np.concatenate(list(_chunks(np.frombuffer(scores), resamples, source)))


def _chunks(scores_N: Floats, resamples: int, source: np.random.Generator) -> Iterator[Floats]:
    size = max(1, _CHUNK // len(scores_N))
    for start in range(0, resamples, size):
        drawn_SN = source.integers(len(scores_N), size=(min(size, resamples - start), len(scores_N)))
        yield scores_N[drawn_SN].mean(axis=1)
