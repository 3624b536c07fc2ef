"""Where sentences end, by example."""

from __future__ import annotations

import tracemalloc

import pytest

from jade.corpus.sentences import Sentence, split_at_words, split_sentences


def split(text: str) -> list[str]:
    return [text[sentence.start : sentence.end] for sentence in split_sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("He met Dr. Smith in St. Louis. They spoke.", ["He met Dr. Smith in St. Louis.", "They spoke."]),
        ("J. K. Rowling wrote it. So it is.", ["J. K. Rowling wrote it.", "So it is."]),
        ("In the U.S. Army he served. Then not.", ["In the U.S. Army he served.", "Then not."]),
        ("It weighs 3.5 kg. That is light.", ["It weighs 3.5 kg.", "That is light."]),
        ("It was approx. five. Or six.", ["It was approx. five.", "Or six."]),
        ('"Really?" she said. "Yes." He left.', ['"Really?" she said.', '"Yes."', "He left."]),
        ("A heading\n\nIts text. More.", ["A heading", "Its text.", "More."]),
        ("A heading\r\n\r\nIts text.", ["A heading", "Its text."]),
        ("One line\nbroken in two. Next.", ["One line\nbroken in two.", "Next."]),
        ("今日は雨です。明日は晴れ！そう", ["今日は雨です。", "明日は晴れ！", "そう"]),
        ("  \n\n \t", []),
        ("", []),
        ("...", ["..."]),
        ("It was I. Then you.", ["It was I.", "Then you."]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_letters_of_scripts_without_spaces_count_as_words() -> None:
    (sentence,) = split_sentences("今日は雨です")
    assert sentence.num_words == 6


def test_a_long_sentence_can_be_cut_at_words() -> None:
    text = "one two three four five"
    (sentence,) = split_sentences(text)
    pieces = [text[piece.start : piece.end] for piece in split_at_words(text, sentence, 2)]
    assert pieces == ["one two", "three four", "five"]


def test_a_file_without_a_full_stop_is_cut_without_a_copy_of_all_its_words() -> None:
    """A table as text is one sentence: 40 megabytes of it took three gigabytes."""
    text = "7 " * 1_000_000
    tracemalloc.start()
    num_words = sum(piece.num_words for piece in split_at_words(text, Sentence(0, len(text), 1_000_000), 100))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_words == 1_000_000
    assert most_bytes < 1_000_000
