"""Answer metrics: against torchmetrics on random pairs, and by their properties."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jade.reward.metrics import accuracy, contains, exact_match, f1, is_yes_no, normalise, precision, recall

ALL = (exact_match, f1, precision, recall, accuracy)
WORDS = (
    "the",
    "a",
    "an",
    "The",
    "Ant",
    "paris",
    "Paris,",
    "New",
    "York",
    "1999",
    "-",
    "U.S.",
    "theory",
    "Élan",
    "é",
    "",
)
texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=6).map(" ".join)
answers = st.lists(texts, min_size=1, max_size=4)


def random_text(source: random.Random) -> str:
    return source.choice((" ", "  ", "\t")).join(source.choices(WORDS, k=source.randint(1, 7)))


def theirs(said: str, golds: list[str]) -> tuple[float, float]:
    """Exact match and F1 by torchmetrics, which counts in percent."""
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    answers = {"answer_start": [0] * len(golds), "text": golds}
    scores = squad({"prediction_text": said, "id": "1"}, {"answers": answers, "id": "1"})
    return float(scores["exact_match"]) / 100, float(scores["f1"]) / 100


def test_exact_match_and_f1_agree_with_torchmetrics_on_two_thousand_pairs() -> None:
    source = random.Random(20240607)
    compared = 0
    while compared < 10_000:
        said, golds = random_text(source), [random_text(source) for _ in range(source.randint(1, 3))]
        if said.strip():
            compared += 1
            assert (exact_match(said, golds), f1(said, golds)) == pytest.approx(theirs(said, golds), abs=1e-6)


@given(texts, answers)
def test_every_metric_lies_between_zero_and_one(said: str, golds: list[str]) -> None:
    assert all(0.0 <= metric(said, golds) <= 1.0 for metric in ALL)


@given(texts, answers, st.randoms())
def test_the_order_of_gold_answers_does_not_matter(said: str, golds: list[str], source: random.Random) -> None:
    shuffled = source.sample(golds, len(golds))
    assert all(metric(said, golds) == metric(said, shuffled) for metric in ALL)


@given(texts, answers, texts)
def test_a_further_gold_answer_never_lowers_a_score(said: str, golds: list[str], further: str) -> None:
    assert all(metric(said, [*golds, further]) >= metric(said, golds) for metric in ALL)


@given(texts, texts)
def test_f1_and_exact_match_are_symmetric_and_precision_is_recall_turned_round(one: str, other: str) -> None:
    assume(one.strip() and other.strip())
    assert f1(one, [other]) == pytest.approx(f1(other, [one]))
    assert exact_match(one, [other]) == exact_match(other, [one])
    assert precision(one, [other]) == recall(other, [one])


@given(texts, texts)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(said: str, gold: str) -> None:
    p, r = precision(said, [gold]), recall(said, [gold])
    assert f1(said, [gold]) == pytest.approx(2 * p * r / (p + r) if p + r else 0.0)


@given(texts, answers, st.sampled_from(("{}", "the {}", "({}).", "  {}")))
def test_saying_a_gold_answer_is_full_marks_in_every_metric(gold: str, others: list[str], dress: str) -> None:
    said = dress.format(gold)
    assume(said.strip())
    assert all(metric(said, [*others, gold]) == 1.0 for metric in ALL)


@given(texts)
def test_normalising_leaves_no_articles_punctuation_or_double_spaces(text: str) -> None:
    result = normalise(text)
    assert not set(result.split()) & {"a", "an", "the"}
    assert not set(result) & set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    assert result == " ".join(result.split())


@given(answers)
def test_a_blank_prediction_scores_nothing(golds: list[str]) -> None:
    assert all(metric(blank, golds) == 0.0 for metric in ALL for blank in ("", "  \n"))


def test_no_gold_answers_score_nothing() -> None:
    assert all(metric("Paris", []) == 0.0 for metric in ALL)


@pytest.mark.parametrize(
    ("said", "golds", "expected"),
    [
        ("Paris, France", ["Paris"], {"em": 0.0, "f1": 2 / 3, "precision": 0.5, "recall": 1.0, "accuracy": 1.0}),
        ("November", ["no"], {"em": 0.0, "f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 0.0}),
        ("the U.S.A.", ["USA"], {"em": 1.0, "f1": 1.0, "precision": 1.0, "recall": 1.0, "accuracy": 1.0}),
        ("to be be", ["be"], {"em": 0.0, "f1": 0.5, "precision": 1 / 3, "recall": 1.0, "accuracy": 1.0}),
    ],
)
def test_scores_by_hand(said: str, golds: list[str], expected: dict[str, float]) -> None:
    scores = dict(
        zip(("em", "f1", "precision", "recall", "accuracy"), (metric(said, golds) for metric in ALL), strict=True)
    )
    assert scores == pytest.approx(expected)


def test_a_phrase_is_contained_as_whole_words_only() -> None:
    assert contains("He studied at the University of Vell.", "university of vell")
    assert not contains("He studied at Vellton.", "Vell")
    assert contains("the", "a")
    assert not contains("Paris", "the")


@pytest.mark.parametrize(
    ("golds", "expected"),
    [(["Yes"], True), (["no.", "No"], True), (["yes", "Paris"], False), (["north"], False), ([], False)],
)
def test_yes_no_questions_are_those_whose_every_gold_is_yes_or_no(golds: list[str], expected: bool) -> None:
    assert is_yes_no(golds) is expected


@pytest.mark.parametrize("metric", ALL)
def test_a_gold_that_is_no_list_is_one_answer(metric: Callable[[str, str | Sequence[str]], float]) -> None:
    assert metric("Ada Lenn", "Ada Lenn") == metric("Ada Lenn", ["Ada Lenn"]) == 1.0
    assert metric("a", "Ada") == 0.0
