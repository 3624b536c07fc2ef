"""Documents into passages: nothing is lost, sentences stay whole, places can be found again."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jade.corpus.cut import Cutting, cut_passages
from jade.corpus.documents import Document
from jade.corpus.sentences import count_words, has_at_most, split_sentences
from jade.errors import ConfigError
from jade.types import Passage

words = st.text(alphabet="bghk", min_size=2, max_size=9)
"""No abbreviation and no initial is among them: after those a sentence goes on."""
sentences = st.lists(words, min_size=1, max_size=12).map(lambda found: " ".join(found).capitalize() + ".")
prose = st.lists(sentences, min_size=1, max_size=30).map(" ".join)
anything = st.text(max_size=600)
cuttings = st.integers(1, 40).flatmap(
    lambda size: st.builds(Cutting, words=st.just(size), overlap=st.integers(0, size - 1))
)


def span(passage: Passage) -> tuple[int, int]:
    found = re.search(r"chars (\d+)-(\d+)$", passage.source)
    assert found is not None
    return int(found[1]), int(found[2])


def cut(text: str, cutting: Cutting, start: int = 0) -> list[Passage]:
    return cut_passages(Document("a.md", "A", text, start=start), cutting)


@given(anything | prose, cuttings, st.integers(0, 20))
def test_passages_hold_every_character_of_the_body_that_is_not_white_space(
    text: str, cutting: Cutting, start: int
) -> None:
    covered = {at for passage in cut(text, cutting, start) for at in range(*span(passage))}
    body = {at for at in range(start, len(text)) if not text[at].isspace()}
    assert body <= covered <= set(range(start, len(text)))


@given(anything | prose, cuttings)
def test_a_passage_is_the_text_at_the_place_it_names(text: str, cutting: Cutting) -> None:
    for passage in cut(text, cutting):
        start, end = span(passage)
        assert passage.text == text[start:end]
        assert passage.text == passage.text.strip() != ""


@given(prose, st.integers(12, 60))
def test_passages_end_where_sentences_end(text: str, size: int) -> None:
    ends = {sentence.end for sentence in split_sentences(text)}
    assert all(span(passage)[1] in ends for passage in cut(text, Cutting(words=size)))


@given(anything | prose, st.integers(1, 40))
def test_without_overlap_no_character_is_in_two_passages(text: str, size: int) -> None:
    spans = [span(passage) for passage in cut(text, Cutting(words=size))]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@given(prose, cuttings)
def test_with_overlap_every_passage_still_says_something_new(text: str, cutting: Cutting) -> None:
    spans = [span(passage) for passage in cut(text, cutting)]
    assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(spans))


@given(anything | prose, cuttings)
def test_ids_are_unique_and_the_same_every_time(text: str, cutting: Cutting) -> None:
    ids = [passage.id for passage in cut(text, cutting)]
    assert len(set(ids)) == len(ids)
    assert ids == [passage.id for passage in cut(text, cutting)]


@given(anything | prose, st.integers(1, 40))
def test_no_passage_grows_beyond_a_bound(text: str, size: int) -> None:
    longest = 2 * size + size // 4 + 1
    assert all(count_words(passage.text) <= longest for passage in cut(text, Cutting(words=size)))


@given(anything | prose, st.integers(0, 60))
def test_the_short_cut_to_counting_agrees_with_counting(text: str, size: int) -> None:
    assert has_at_most(text, size) == (count_words(text) <= size)


def test_the_overlap_repeats_at_least_the_words_asked_for() -> None:
    text = " ".join(f"Sentence number {number} stands here." for number in range(40))
    passages = cut(text, Cutting(words=20, overlap=5))
    for before, after in pairwise(passages):
        assert after.text.split()[:5] == before.text.split()[-5:]


def test_passages_are_about_as_long_as_asked() -> None:
    text = " ".join(f"This is sentence number {number} of the text." for number in range(200))
    lengths = [count_words(passage.text) for passage in cut(text, Cutting(words=100))]
    assert all(90 <= length <= 110 for length in lengths[:-1])


def test_a_small_rest_joins_the_passage_before_it() -> None:
    text = "Nine words are in this sentence here right now. " * 2 + "Two more."
    assert [count_words(passage.text) for passage in cut(text, Cutting(words=18))] == [20]


def test_a_word_without_end_is_cut_somewhere() -> None:
    passages = cut("x" * 10_000, Cutting(words=10))
    assert "".join(passage.text for passage in passages) == "x" * 10_000
    assert max(len(passage.text) for passage in passages) <= 1000


def test_a_short_row_passes_through_under_its_own_id() -> None:
    row = Document("wiki.jsonl", "Paris", " Paris is a city. It is large. ", place="line 3", own_id="77")
    assert cut_passages(row, Cutting(words=3)) == [
        Passage("77", "Paris", "Paris is a city. It is large.", "wiki.jsonl:line 3")
    ]


def test_a_long_row_is_cut_and_its_passages_are_numbered() -> None:
    row = Document("wiki.jsonl", "Paris", "Paris is a city. It is large.", place="line 3", own_id="77")
    found = cut_passages(row, Cutting(words=4, row_words=5))
    assert [(passage.id, passage.source) for passage in found] == [
        ("77#1", "wiki.jsonl:line 3:chars 0-16"),
        ("77#2", "wiki.jsonl:line 3:chars 17-29"),
    ]


def test_a_row_without_an_id_is_known_by_its_line() -> None:
    row = Document("wiki.jsonl", "", "Text.", place="line 3")
    assert cut_passages(row)[0].id == "wiki.jsonl:line 3"


def test_a_passage_names_the_page_it_starts_on() -> None:
    document = Document("report.pdf", "Report", "First page here.\nSecond page here.", pages=(0, 17))
    sources = [passage.source for passage in cut_passages(document, Cutting(words=3))]
    assert sources == ["report.pdf:page 1:chars 0-16", "report.pdf:page 2:chars 17-34"]


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 10), (10, -1)])
def test_impossible_lengths_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ConfigError, match=str(overlap if size else size)):
        Cutting(words=size, overlap=overlap)
