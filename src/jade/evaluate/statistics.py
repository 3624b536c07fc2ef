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


def estimate(groups: Sequence[Floats], resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The mean of the groups' means with its percentile interval."""
    mean = mean_of_means(groups)
    means_S = resampled_means(groups, resamples, seed)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means_S, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def paired_p_value(
    ours: Sequence[Floats], theirs: Sequence[Floats], resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """How often chance alone gives a difference this large, when the same questions are compared; two-sided.

    The differences are shifted to mean 0, which is what holds if the two are equally good, and resampled.
    """
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    observed = abs(mean_of_means(differences))
    means_S = resampled_means([each - each.mean() for each in differences], resamples, seed)
    # A hair's breadth of slack: equal means must count as equal whatever the order of summation.
    as_large = np.count_nonzero(np.abs(means_S) >= observed - 1e-12)
    return float((as_large + 1) / (resamples + 1))


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
