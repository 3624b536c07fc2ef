"""BM25: the scores are those of the formula, and the order is that of the scores."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retrieval_builders import TOWNS, build, passages

import jade.retrieval.bm25 as bm25
from jade.retrieval.bm25 import Bm25Searcher, open_bm25, write_bm25
from jade.retrieval.index import open_index
from jade.retrieval.kernel import Postings, best_by_numba, best_by_numpy, check_postings, compiled, fill_best
from jade.retrieval.terms import STOP_WORDS, TITLE_WEIGHT, fold, known_numbers, terms_of
from jade.types import Passage

words = st.sampled_from(["ash", "elm", "oak", "fir", "yew", "the", "a", "river", "town", "of", "school"])
texts = st.lists(st.lists(words, min_size=1, max_size=12).map(" ".join), min_size=1, max_size=12)
queries = st.lists(st.lists(words | st.just("unseen"), max_size=5).map(" ".join), min_size=1, max_size=4)


def brute_force(found: Sequence[Passage], query: str, k1: float = 1.2, b: float = 0.75) -> list[float]:
    """BM25 as Lucene defines it, one passage and one term at a time."""
    bags = [((one.title.lower().split() * TITLE_WEIGHT) + one.text.lower().split()) for one in found]
    bags = [[word for word in bag if word not in STOP_WORDS] for bag in bags]
    mean = sum(map(len, bags)) / len(bags)
    scores = []
    for bag in bags:
        score = 0.0
        for word in query.lower().split():
            holders = sum(word in other for other in bags)
            if holders and word not in STOP_WORDS:
                idf = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
                count = bag.count(word)
                score += idf * count / (count + k1 * (1 - b + b * len(bag) / mean)) if count else 0.0
        scores.append(score)
    return scores


@contextmanager
def searcher(folder: Path, found: Sequence[Passage] = TOWNS, threads: int = 1) -> Iterator[Bm25Searcher]:
    build(folder, found)
    index = open_index(folder)
    opened = open_bm25(index, index.part("bm25"), threads)
    try:
        yield opened
    finally:
        opened.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, queries)
def test_scores_are_those_of_the_formula(tmp_path: Path, corpus: list[str], asked: list[str]) -> None:
    found = passages(corpus)
    with searcher(tmp_path / "index", found) as opened:
        results = opened.find(asked, len(corpus))
    for query, result in zip(asked, results, strict=True):
        expected = brute_force(found, query)
        assert {one.id: one.score for one in result} == pytest.approx(
            {one.id: score for one, score in zip(found, expected, strict=True) if score > 0}, rel=1e-5
        )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=6, unique=True), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(0, 2**31),
)
def test_compiled_and_numpy_search_agree_to_the_last_bit(
    rows: list[list[int]], asked: list[list[int]], k: int, seed: int
) -> None:
    lists = [sorted(found) for found in rows]
    num_scores = sum(map(len, lists))
    scores = np.random.default_rng(seed).choice(np.array([0.1, 0.3, 0.7], np.float32), num_scores)
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    postings = Postings(
        scores.astype(np.float32), np.array([row for found in lists for row in found], np.int32), starts, 7
    )
    check_postings(postings, range(len(lists)))
    terms = np.array([term % len(lists) for query in asked for term in query], np.int32)
    splits = np.cumsum([0, *map(len, asked)], dtype=np.int64)
    slow, fast = best_by_numpy(postings, terms, splits, k), best_by_numba(postings, terms, splits, k)
    plain = np.zeros_like(slow.scores_BK), np.full_like(slow.rows_BK, -1)
    fill_best(*postings, terms, splits, *plain)
    for one, other in ((fast, slow), (plain, slow)):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_the_folder_is_one_that_bm25s_itself_can_search(tmp_path: Path) -> None:
    import bm25s

    with searcher(tmp_path / "index") as opened:
        ours = opened.find(["river near Ashford"], 3)[0]
    theirs = bm25s.BM25.load(open_index(tmp_path / "index").data / "bm25")
    numbers = known_numbers("river near Ashford", theirs.vocab_dict)
    rows, scores = theirs.retrieve([numbers], k=3, show_progress=False)
    assert [TOWNS[row].id for row in rows[0]] == [one.id for one in ours]
    assert [one.score for one in ours] == pytest.approx(scores[0].tolist())


def test_the_passage_about_it_comes_first(tmp_path: Path) -> None:
    with searcher(tmp_path / "index") as opened:
        results = opened.find(["Where does the Len rise?", "paraiba", "Which mill burned?"], 2)
    assert [found[0].title for found in results] == ["Len", "Paraíba", "Brightwell"]


def test_a_passage_comes_back_whole_with_its_score(tmp_path: Path) -> None:
    with searcher(tmp_path / "index") as opened:
        (found,) = opened.find(["Brazil"], 5)[0]
    assert found.score > 0
    assert (found.id, found.title, found.text, found.source) == (
        TOWNS[3].id, TOWNS[3].title, TOWNS[3].text, TOWNS[3].source,
    )  # fmt: skip


@pytest.mark.parametrize("query", ["", "the of and", "zzz qqq", "?!", "\ud800"])
def test_a_query_that_shares_no_word_finds_nothing(tmp_path: Path, query: str) -> None:
    with searcher(tmp_path / "index") as opened:
        assert opened.find([query], 5) == [[]]


def test_of_equal_passages_the_earlier_wins_whatever_k_is(tmp_path: Path) -> None:
    with searcher(tmp_path / "index", passages(["oak tree"] * 9 + ["fir"])) as opened:
        for k in range(1, 10):
            assert [one.id for one in opened.find(["oak"], k)[0]] == [str(n) for n in range(1, k + 1)]


def test_a_corpus_of_stop_words_is_an_index_that_finds_nothing(tmp_path: Path) -> None:
    with searcher(tmp_path / "index", passages(["the of", "and"])) as opened:
        assert opened.find(["the", "town"], 5) == [[], []]


def test_many_threads_and_many_queries_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = passages([f"town {n % 7} river {n % 5} school {n}" for n in range(60)])
    asked = [f"town {n} river {n + 1} school {n}" for n in range(50)]
    with searcher(tmp_path / "index", corpus) as alone:
        expected = [alone.find([query], 4)[0] for query in asked]
    monkeypatch.setattr(bm25, "WORTH_COMPILING", 100)
    with searcher(tmp_path / "index", corpus, threads=3) as shared, ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: shared.find(asked, 4), range(8)):
            assert found == expected


def test_lists_that_leave_their_arrays_are_refused() -> None:
    ones = np.ones(2, np.float32), np.zeros(2, np.int32)
    for starts in ([0, 1, 3], [1, 1, 2], [0, 2, 1], [0, 2]):
        with pytest.raises(ValueError, match="its"):
            check_postings(Postings(*ones, np.array(starts), 1), range(2))
    wrong: list[Any] = [[0, 2], [-1, 0], [0, "1"]]
    for terms in wrong:
        with pytest.raises(ValueError, match="numbered"):
            check_postings(Postings(*ones, np.array([0, 1, 2]), 1), terms)


def test_a_damaged_row_number_is_not_followed() -> None:
    postings = Postings(np.ones(2, np.float32), np.array([0, 10**6], np.int32), np.array([0, 2]), 1)
    best = best_by_numba(postings, np.array([0], np.int32), np.array([0, 1]), 1)
    assert best.rows_BK.tolist() == [[0]]


def test_numba_serves_where_it_has_no_place_to_keep_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    def njit(*, nogil: bool, cache: bool = False) -> Callable[[object], object]:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    compiled.cache_clear()
    try:
        assert compiled() is fill_best
    finally:
        compiled.cache_clear()


def test_jax_is_kept_off_the_gpu_only_while_bm25s_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    write_bm25(TOWNS, tmp_path / "one")
    assert "JAX_PLATFORMS" not in os.environ
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    write_bm25(TOWNS, tmp_path / "two")
    assert os.environ["JAX_PLATFORMS"] == "cuda"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S. Army's 3rd", ["the", "u", "s", "army", "s", "3rd"]),
        ("Łódź–Kraków ‘café’", ["łodz", "krakow", "cafe"]),
        ("snake_case ﬁne", ["snake", "case", "fine"]),
        ("東京 tower", ["東", "京", "tower"]),
        ("Straße ΑΒΓ", ["straße", "αβγ"]),
        ("", []),
    ],
)
def test_terms_are_folded_words(text: str, expected: list[str]) -> None:
    assert terms_of(text) == expected


@given(st.text(max_size=100))
def test_plain_text_gives_the_same_terms_both_ways(text: str) -> None:
    from jade.retrieval.terms import TERM

    assert terms_of(text) == TERM.findall(fold(text))
