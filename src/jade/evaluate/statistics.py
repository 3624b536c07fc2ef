"""How sure a number is: bootstrap intervals and paired bootstrap p-values, seeded, over questions.

The mean over several benchmarks is the mean of their means, whatever their sizes; there each benchmark is resampled
within itself. Formulas after Efron and Tibshirani (1993), chapters 13 and 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# S = resamples, N = questions
Floats = NDArray[np.float64]
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


def estimate(groups: Sequence[Floats], resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The mean of the groups' means with its percentile interval."""
    return Estimate(mean_of_means(groups), *_interval(resampled_means(groups, resamples, seed)))


def compare(ours: Sequence[Floats], theirs: Sequence[Floats], resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """What the first has over the second on the same questions, question by question.

    The p-value says how often chance alone gives a difference this large, in either direction: the differences are
    shifted to mean 0, which is what holds if the two are equally good, and resampled. Shifting commutes with taking
    means, so one set of resamples serves the interval and the p-value.
    """
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    mean = mean_of_means(differences)
    means_S = resampled_means(differences, resamples, seed)
    # A hair's breadth of slack: equal means must count as equal whatever the order of summation.
    as_large = np.count_nonzero(np.abs(means_S - mean) >= abs(mean) - 1e-12)
    return Difference(mean, *_interval(means_S), float((as_large + 1) / (resamples + 1)))


def _interval(means_S: Floats) -> tuple[float, float]:
    """The middle of the resamples, `LEVEL` of them."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means_S, [tail, 1 - tail])
    return float(low), float(high)


def mean_of_means(groups: Sequence[Floats]) -> float:
    return float(np.mean([group.mean() for group in groups]))


def resampled_means(groups: Sequence[Floats], resamples: int, seed: int) -> Floats:
    """The mean of means of each resample: questions drawn with replacement within each group."""
    source = np.random.default_rng(seed)
    total_S = np.zeros(resamples)
    for group in groups:
        total_S += np.concatenate(list(_chunks(group, resamples, source)))
    return total_S / len(groups)


def _chunks(scores_N: Floats, resamples: int, source: np.random.Generator) -> Iterator[Floats]:
    size = max(1, _CHUNK // len(scores_N))
    for start in range(0, resamples, size):
        drawn_SN = source.integers(len(scores_N), size=(min(size, resamples - start), len(scores_N)))
        yield scores_N[drawn_SN].mean(axis=1)
