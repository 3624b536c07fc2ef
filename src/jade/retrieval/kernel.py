"""The inner loop of BM25: add up the scores of a query's terms and keep the best k.

Two forms of one definition. Numba's is ten times faster and costs a second to load, so it is worth it for a
batch; numpy's starts at once. They agree to the last bit: sums run in the order of the terms, and of equal
scores the earlier passage wins. Neither holds the interpreter lock for long, so batches split over threads.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# D = passages, N = non-zero scores, V = terms, B = queries, T = terms of all queries, K = results


class Postings(NamedTuple):
    """BM25's scores by term: those of term v are scores_N[starts_V[v] : starts_V[v + 1]]."""

    scores_N: NDArray[np.float32]
    rows_N: NDArray[np.int32]
    starts_V: NDArray[np.int64]
    num_passages: int


def check_postings(postings: Postings, terms: Collection[int]) -> None:
    """ValueError unless every term's list lies inside the arrays: compiled code does not look."""
    starts_V, num_scores = postings.starts_V, len(postings.scores_N)
    if not all(isinstance(term, int) and 0 <= term < len(terms) for term in terms):
        raise ValueError("its terms are not numbered as its lists are")
    if len(starts_V) != len(terms) + 1 or len(postings.rows_N) != num_scores:
        raise ValueError("its arrays do not belong together")
    if starts_V[0] != 0 or starts_V[-1] != num_scores or (np.diff(starts_V) < 0).any():
        raise ValueError("its lists do not lie inside its arrays")


class Best(NamedTuple):
    """The best passages of every query, best first; row -1 where there are fewer than k."""

    scores_BK: NDArray[np.float32]
    rows_BK: NDArray[np.int32]


def best_by_numpy(postings: Postings, terms_T: NDArray[np.int32], splits_B: NDArray[np.int64], k: int) -> Best:
    """Query b's terms are terms_T[splits_B[b] : splits_B[b + 1]]."""
    best = _none_yet(len(splits_B) - 1, k)
    for query in range(len(splits_B) - 1):
        scores_D = np.zeros(postings.num_passages, np.float32)
        for term in terms_T[splits_B[query] : splits_B[query + 1]]:
            found = slice(postings.starts_V[term], postings.starts_V[term + 1])
            scores_D[postings.rows_N[found]] += postings.scores_N[found]  # a passage occurs once in a term's list
        rows = np.flatnonzero(scores_D)
        if len(rows) > k:
            threshold = np.partition(scores_D[rows], -k)[-k]
            rows = rows[scores_D[rows] >= threshold]
        rows = rows[np.lexsort((rows, -scores_D[rows]))][:k]
        best.scores_BK[query, : len(rows)] = scores_D[rows]
        best.rows_BK[query, : len(rows)] = rows
    return best


def best_by_numba(postings: Postings, terms_T: NDArray[np.int32], splits_B: NDArray[np.int64], k: int) -> Best:
    best = _none_yet(len(splits_B) - 1, k)
    compiled()(*postings, terms_T, splits_B, *best)
    return best


def _none_yet(num_queries: int, k: int) -> Best:
    return Best(np.zeros((num_queries, k), np.float32), np.full((num_queries, k), -1, np.int32))


def fill_best(
    scores_N: NDArray[np.float32],
    rows_N: NDArray[np.int32],
    starts_V: NDArray[np.int64],
    num_passages: int,
    terms_T: NDArray[np.int32],
    splits_B: NDArray[np.int64],
    best_BK: NDArray[np.float32],
    best_rows_BK: NDArray[np.int32],
) -> None:
    """Plain loops for numba to compile; inserts each better passage into the sorted best. Only what is strictly better
    moves another down, so of equal scores the earlier passage stays ahead."""
    k = best_BK.shape[1]
    scores_D = np.zeros(num_passages, np.float32)
    for query in range(len(splits_B) - 1):
        scores_D[:] = 0
        for position in range(splits_B[query], splits_B[query + 1]):
            term = terms_T[position]
            for n in range(starts_V[term], starts_V[term + 1]):
                row = rows_N[n]
                if 0 <= row < num_passages:  # a damaged file must not write beyond the array
                    scores_D[row] += scores_N[n]
        for row in range(num_passages):
            score = scores_D[row]
            if score > best_BK[query, k - 1]:
                place = k - 1
                while place > 0 and best_BK[query, place - 1] < score:
                    best_BK[query, place] = best_BK[query, place - 1]
                    best_rows_BK[query, place] = best_rows_BK[query, place - 1]
                    place -= 1
                best_BK[query, place] = score
                best_rows_BK[query, place] = row


@cache
def compiled() -> Any:
    """`fill_best` as machine code, kept on disk between runs where there is a place to keep it."""
    from numba import njit

    try:
        return njit(nogil=True, cache=True)(fill_best)
    except RuntimeError:  # numba found no folder that it may write to
        return njit(nogil=True)(fill_best)
