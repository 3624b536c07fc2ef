"""The words of the world: names, sentences and questions that read well."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from jade.corpus.world import make_world
from jade.corpus.world.forms import Phrase, accepts, ends_in_subject
from jade.corpus.world.history import LEAST, SHARES, SMALLEST_PART, members_by_kind, part_sizes
from jade.corpus.world.lexicon import WORDS
from jade.corpus.world.literals import quantity, threshold, with_article
from jade.corpus.world.names import Namer
from jade.corpus.world.pages import page_name, possessive
from jade.corpus.world.wording import KINDS, Relation, kinds, relations, slots

SUBJECT_SLOTS = {"name", "they", "their", "them", "subject"}
PRONOUN_SLOTS = {"he", "his", "him"}
FORM_SLOTS = {"and", "or", "a", "b", "value", "an_value"}
all_relations = pytest.mark.parametrize("relation", relations().values(), ids=lambda relation: relation.id)


@pytest.mark.parametrize("name", sorted(WORDS))
def test_no_word_stands_inside_another_of_its_list(name: str) -> None:
    words = WORDS[name]
    assert len(set(words)) == len(words)
    assert [(a, b) for a in words for b in words if a != b and a in b] == []


def test_given_names_are_of_one_list_only_and_start_no_other() -> None:
    names = WORDS["feminine"] + WORDS["masculine"]
    assert [(a, b) for a in names for b in names if a != b and b.startswith(a)] == []


@all_relations
def test_every_relation_can_be_stated_and_asked_in_three_ways(relation: Relation) -> None:
    alone = [line for line in kinds()[relation.kind].sentences if line.states == {relation.name}]
    assert len(alone) >= 3
    assert len(set(relation.forward.questions)) >= 3


@all_relations
def test_every_relation_can_take_a_long_description(relation: Relation) -> None:
    assert any(map(ends_in_subject, relation.forward.questions))
    assert not relation.object or any(map(ends_in_subject, relation.forward.phrases))
    if relation.backward.questions:
        assert any(map(ends_in_subject, relation.backward.questions))
        assert any(map(ends_in_subject, relation.backward.phrases))


@all_relations
def test_every_template_holds_its_slots_and_ends_as_it_should(relation: Relation) -> None:
    for asking in (relation.forward, relation.backward):
        assert all(slots(text) == ["s"] for text in (*asking.questions, *asking.phrases))
        assert all(text.endswith("?") for text in asking.questions)
        assert not any(text.endswith("?") for text in asking.phrases)
    for texts in relation.forms.values():
        assert all(text.endswith("?") and set(slots(text)) <= FORM_SLOTS for text in texts)


@all_relations
def test_what_can_be_compared_can_be_compared_in_twos_and_in_more(relation: Relation) -> None:
    for end in ("least", "most"):
        asked = {size: {end, f"{end}_{size}"} & relation.forms.keys() for size in ("two", "many")}
        assert bool(asked["two"]) == bool(asked["many"])
        assert not asked["two"] or relation.unit in ("year", "date") or relation.high


@pytest.mark.parametrize("name", KINDS)
def test_a_pronoun_follows_a_mention_of_the_subject(name: str) -> None:
    kind = kinds()[name]
    allowed = SUBJECT_SLOTS | PRONOUN_SLOTS | {"country", *kind.relations} | {f"an_{key}" for key in kind.relations}
    for line in (*kind.leads, *kind.sentences, *kind.flavour):
        found = slots(line.text)
        assert set(found) <= allowed, line.text
        assert not line.states & {"country"}
        pronouns = [number for number, slot in enumerate(found) if slot in PRONOUN_SLOTS]
        assert all(SUBJECT_SLOTS & set(found[:number]) for number in pronouns), line.text


@pytest.mark.parametrize("name", KINDS)
def test_leads_open_the_page_with_the_name_and_colour_states_nothing(name: str) -> None:
    kind = kinds()[name]
    assert len(kind.leads) >= 4
    assert all("{name}" in lead.text for lead in kind.leads)
    assert all(not line.states for line in kind.flavour)


def test_pages_read_as_english() -> None:
    world = make_world(1500, 0, 1)
    for page in world.pages:
        assert page.text.startswith((page.title, f"The {page.title}")) or page.title in page.text.split(".")[0]
        assert page.text.endswith(".")
        sentences = re.split(r"(?<=\.) ", page.text)
        assert 3 <= len(sentences) <= 10
        assert all(sentence[0].isupper() for sentence in sentences), page.text
        assert not re.search(r"\b(a [aeio]|an [^aeiou]|the the|of it (is|was|goes)|  |\{|\})", page.text, re.I), (
            page.text
        )


def test_pages_of_a_kind_do_not_share_one_template() -> None:
    world = make_world(1500, 0, 1)
    kind_of = {entity.name: entity.kind for entity in world.entities}
    shapes = Counter(
        re.sub(r"[A-Z][\w'&-]*|\d[\d,]*", "_", page.text) for page in world.pages if kind_of[page.title] == "town"
    )
    assert shapes.most_common(1)[0][1] <= 2


def test_questions_read_as_english() -> None:
    for question in make_world(1500, 2000, 1).questions:
        text = question.text
        assert text[0].isupper()
        assert text.endswith("?")
        assert not re.search(
            r"\b(a [aeio]|an [^aeiou]|the the|rivers the|lakes Lake|mountains Mount)\b|  |\{|\}|#", text
        ), text
        assert len(text.split()) <= 60


def test_names_are_not_derived_from_each_other_or_offensive() -> None:
    namer = Namer(3)
    stems = [namer.stem(kind).lower() for kind in KINDS for _ in range(200)]
    assert len(set(stems)) == len(stems)
    assert [(a, b) for a in stems for b in stems if a != b and a in b] == []
    assert all(re.fullmatch(r"[a-z]{5,}", stem) for stem in stems)
    assert not any("shit" in stem or "cum" in stem for stem in stems)


def test_titles_never_run_out() -> None:
    namer = Namer(1)
    titles = [namer.entity("book", "train").name for _ in range(12_000)]
    assert len(set(titles)) == len(titles)


def test_a_long_description_stands_only_at_the_end_of_a_question() -> None:
    name, short = Phrase("Bral", 0, True), Phrase("the founder of Bral", 1, True)
    long = Phrase("the mentor of the founder of Bral", 2, True)
    clause = Phrase("the company that Bral founded", 1, False)
    assert accepts("Who is {s}'s mentor?", name)
    assert not accepts("Who is {s}'s mentor?", short)
    assert accepts("Where was {s} born?", short)
    assert not accepts("Where was {s} born?", long)
    assert not accepts("When was {s} closed?", clause)
    assert all(accepts("What is the birthplace of {s}?", phrase) for phrase in (name, short, long, clause))


def test_articles_and_possessives() -> None:
    assert [with_article(word) for word in ("owl", "unicorn", "fox")] == ["an owl", "a unicorn", "a fox"]
    assert (possessive("Bral"), possessive("Bral Works")) == ("Bral's", "Bral Works'")


def test_file_names_are_safe() -> None:
    assert page_name("Tovel & Sons") == "tovel-sons"
    assert all(re.fullmatch(r"[a-z0-9-]+", page.name) for page in make_world(300, 0, 0).pages)


def test_quantities_are_written_and_may_be_answered_in_several_ways() -> None:
    assert quantity(1729, "metres").answers == ("1,729 metres", "1,729 m", "1,729", "1729 metres", "1729")
    assert quantity(39, "kilometres").answers == ("39 kilometres", "39 km", "39")
    assert quantity(12480, "people").answers == ("12,480", "12480")


@pytest.mark.parametrize("below", [0, 1, 2, 3])
def test_a_threshold_leaves_so_many_below(below: int) -> None:
    ranks = [1804, 1850, 1902]
    bound = threshold("year", ranks, below)
    assert bound is not None
    assert bound[0] == str(bound[1])
    assert sum(rank < bound[1] for rank in ranks) == below
    assert bound[1] not in ranks


def test_no_threshold_where_nothing_round_separates() -> None:
    assert threshold("year", [1851, 1852], 1) is None


@pytest.mark.parametrize("pages", [50, 61, 199, 1000, 99_999])
def test_every_page_is_allotted_to_a_part_and_a_kind(pages: int) -> None:
    sizes = part_sizes(pages)
    assert sum(sizes.values()) == pages
    for size in sizes.values():
        counts = members_by_kind(size)
        assert sum(counts.values()) == size >= SMALLEST_PART
        assert all(counts[kind] >= least for kind, least in LEAST.items())
        assert counts["province"] < counts["town"]
    assert sum(SHARES.values()) == 100
