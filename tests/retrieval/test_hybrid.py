"""Fusion by reciprocal rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval_builders import EchoRetriever

from jade.errors import RetrievalFailed
from jade.retrieval.base import Retriever
from jade.retrieval.hybrid import HybridRetriever, fuse
from jade.types import Passage

rankings = st.lists(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8).map(
        lambda ids: [Passage(one, one.upper(), one, score=float(n)) for n, one in enumerate(ids)]
    ),
    min_size=1,
    max_size=4,
)


def ids(found: list[Passage]) -> list[str]:
    return [passage.id for passage in found]


@given(rankings)
def test_a_passage_earns_its_reciprocal_rank_from_every_list(lists: list[list[Passage]]) -> None:
    for passage in fuse(lists, 100):
        ranks = [ids(ranking).index(passage.id) + 1 for ranking in lists if passage.id in ids(ranking)]
        assert passage.score == pytest.approx(sum(1 / (60 + rank) for rank in ranks))


@given(rankings, st.integers(1, 10))
def test_fusing_keeps_every_passage_once_best_first_and_a_larger_k_only_adds(
    lists: list[list[Passage]], k: int
) -> None:
    everything = fuse(lists, 100)
    scores = [passage.score for passage in everything]
    assert scores == sorted(scores, reverse=True)
    assert sorted(ids(everything)) == sorted({passage.id for ranking in lists for passage in ranking})
    assert fuse(lists, k) == everything[:k]


@given(rankings)
def test_the_order_of_the_retrievers_does_not_matter(lists: list[list[Passage]]) -> None:
    forwards, backwards = fuse(lists, 100), fuse(lists[::-1], 100)
    assert ids(forwards) == ids(backwards)


@given(rankings.map(lambda lists: lists[:1]))
def test_one_list_keeps_its_order(lists: list[list[Passage]]) -> None:
    assert ids(fuse(lists, 100)) == ids(lists[0])


def test_a_passage_that_both_lists_have_beats_the_first_of_one() -> None:
    a, b, c = (Passage(one, "", one) for one in "abc")
    assert ids(fuse([[a, b], [c, b]], 3)) == ["b", "a", "c"]


def test_a_list_that_repeats_itself_counts_once() -> None:
    a, b = Passage("a", "", "first"), Passage("b", "", "b")
    again = Passage("a", "", "second")
    assert [(one.id, one.text) for one in fuse([[a, again, b]], 3)] == [("a", "first"), ("b", "b")]


async def test_all_retrievers_are_asked_deeper_than_k_and_closed() -> None:
    one, other = EchoRetriever(), EchoRetriever()
    hybrid = HybridRetriever([one, other], depth=7)
    assert isinstance(hybrid, Retriever)
    found = await hybrid.search(["x", "y"], 2)
    assert [ids(passages) for passages in found] == [["x1", "x2"], ["y1", "y2"]]
    assert one.asked == other.asked == [(["x", "y"], 7)]
    assert await hybrid.search([], 2) == []
    await hybrid.close()
    assert one.closed
    assert other.closed


async def test_a_retriever_that_fails_fails_the_search() -> None:
    class Broken(EchoRetriever):
        async def search(self, queries: object, k: int) -> list[list[Passage]]:
            raise RetrievalFailed("broken")

    with pytest.raises(RetrievalFailed, match="broken"):
        await HybridRetriever([EchoRetriever(), Broken()]).search(["x"], 1)
