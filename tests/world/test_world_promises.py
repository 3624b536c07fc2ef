"""The promises of the world, over many seeds and sizes, and by an evaluation that shares no code with the maker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jade.corpus.world import Fact, World, check_world, make_world
from jade.corpus.world.model import Value
from jade.types import Question

seeds = st.integers(min_value=-(2**40), max_value=2**40)


@settings(max_examples=25, deadline=None)
@given(pages=st.integers(50, 400), questions=st.integers(0, 90), seed=seeds)
def test_every_world_keeps_its_promises(pages: int, questions: int, seed: int) -> None:
    world = make_world(pages, questions, seed)
    assert check_world(world) == []
    assert (len(world.pages), len(world.questions)) == (pages, questions)
    assert (len(world.dev), len(world.test)) == (questions // 10, questions // 10)


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_gold_answers_follow_from_the_sub_answers_alone(seed: int) -> None:
    for question in make_world(120, 100, seed).questions:
        assert question.answers[0] == _from_sub_answers(question), question.text


@pytest.mark.parametrize("seed", range(4))
def test_each_hop_has_exactly_one_answer_among_all_facts(seed: int) -> None:
    world = make_world(80, 60, seed)
    for question in world.questions:
        previous: list[str] = []
        for (subject, relation), hop in zip(
            question.metadata["facts"], question.metadata["decomposition"], strict=True
        ):
            assert _all_answers(world, subject, relation, hop["answer"]) == [hop["answer"]]
            if question.metadata["workflow"] == "QDS":
                asked_about = {subject, *_values(world, subject, relation)} - {hop["answer"]}
                assert not previous or asked_about == {previous[-1]}
                previous.append(hop["answer"])


@pytest.mark.parametrize("pages", [50, 60, 250, 1500])
def test_splits_share_no_fact_and_no_page(pages: int) -> None:
    world = make_world(pages, 100, 11)
    facts = [{tuple(fact) for q in asked for fact in q.metadata["facts"]} for asked in world.splits.values()]
    pages_used = [
        {title for q in asked for title in q.metadata["supporting_titles"]} for asked in world.splits.values()
    ]
    for sets in (facts, pages_used):
        assert all(sets)
        assert sum(map(len, sets)) == len(set.union(*sets))


def test_every_kind_and_length_occurs_in_every_split() -> None:
    world = make_world(600, 1000, 2)
    for split, asked in world.splits.items():
        kinds = Counter(question.metadata["kind"] for question in asked)
        size = len(asked)
        assert kinds == {"single": size / 4, "serial": size * 2 / 5, "parallel": size / 5, "yesno": size * 3 / 20}, (
            split
        )
        assert {q.metadata["hops"] for q in asked if q.metadata["kind"] == "serial"} == {2, 3, 4}
        workflows = {(q.metadata["kind"], q.metadata["workflow"]) for q in asked}
        assert {("single", "one-round"), ("serial", "QDS"), ("parallel", "QDP"), ("yesno", "QDP")} <= workflows


def test_yes_and_no_are_about_as_frequent() -> None:
    answers = Counter(q.answers[0] for q in make_world(800, 2000, 3).questions if q.metadata["kind"] == "yesno")
    assert set(answers) == {"yes", "no"}
    assert 0.4 < answers["yes"] / answers.total() < 0.6


def test_the_first_of_a_comparison_is_not_favoured() -> None:
    pairs = [q for q in make_world(800, 2000, 4).questions if q.metadata["form"] in ("least", "most")]
    first = [q.answers[0] == q.metadata["facts"][0][0] for q in pairs if q.metadata["hops"] == 2]
    assert len(first) > 80
    assert 0.35 < sum(first) / len(first) < 0.65


def test_pages_do_not_depend_on_the_number_of_questions() -> None:
    assert make_world(90, 0, 6).pages == make_world(90, 90, 6).pages


def test_years_agree_with_each_other() -> None:
    world = make_world(2000, 0, 5)
    known = {(fact.subject, fact.relation): fact.value for fact in world.facts}

    def year(subject: str, relation: str) -> int:
        return int(known[subject, relation].text.split()[-1])

    deeds = {"company.founder": "founded", "book.author": "published", "opera.composer": "premiered"}
    deeds |= {"festival.founder": "first_held", "bridge.designer": "opened", "university.rector": "founded"}
    checked = Counter[str]()
    for (subject, relation), value in known.items():
        kind = relation.partition(".")[0]
        if relation in deeds:
            age = year(subject, f"{kind}.{deeds[relation]}") - year(value.text, "person.born")
            assert 20 <= age <= 80, (subject, relation)
        elif relation == "person.university":
            assert year(value.text, "university.founded") <= year(subject, "person.born") + 20
        elif relation == "person.mentor":
            assert year(value.text, "person.born") <= year(subject, "person.born") - 15
        elif relation == "person.spouse":
            assert known[value.text, "person.spouse"].text == subject
        elif relation == "opera.novel":
            assert year(value.text, "book.published") < year(subject, "opera.premiered")
        elif relation == "province.capital":
            assert known[value.text, "town.province"].text == subject
        else:
            continue
        checked[relation] += 1
    assert len(checked) == len(deeds) + 5


def _spoil(world: World, **metadata: object) -> World:
    question = world.train[0]
    return replace(world, train=(replace(question, metadata={**question.metadata, **metadata}), *world.train[1:]))


def _broken(world: World) -> Iterator[tuple[str, World]]:
    question, page, fact, entity = world.train[0], world.pages[0], world.facts[0], world.entities[0]
    hop = {**question.metadata["decomposition"][0]}
    yield "gold answer is", replace(world, train=(replace(question, answers=("nobody",)), *world.train[1:]))
    yield "is not on the page", _spoil(world, decomposition=[{**hop, "answer": "nobody"}])
    yield "should refer to", _spoil(world, decomposition=[{**hop, "question": "Where is #3?"}])
    yield "asked 2 times", replace(world, dev=(*world.dev, question))
    yield "is asked in dev and in train", replace(world, dev=(*world.dev, replace(question, text="Other words?")))
    yield "does not state", replace(world, pages=(replace(page, text=page.title), *world.pages[1:]))
    yield "no page about", replace(world, pages=(replace(page, title="Elsewhere"), *world.pages[1:]))
    yield "same file name", replace(world, pages=(replace(page, name=world.pages[1].name), *world.pages[1:]))
    yield "2 values of", replace(world, facts=(*world.facts, Fact(fact.subject, fact.relation, Value("else"))))
    yield "used twice", replace(world, entities=(*world.entities, entity))
    yield "stands inside", replace(world, entities=(*world.entities, replace(entity, name=f"New {entity.name}")))
    leaky = replace(question, text=f"{question.text} {hop['answer']}?")
    yield "contains the answer", replace(world, train=(leaky, *world.train[1:]))


def test_a_broken_promise_is_noticed() -> None:
    world = make_world(60, 40, 8)
    first = next(number for number, q in enumerate(world.train) if q.metadata["kind"] == "single")
    world = replace(world, train=world.train[first:])
    cases = list(_broken(world))
    for complaint, broken in cases:
        if complaint == "no page about":
            broken = replace(
                broken, facts=tuple(f for f in broken.facts if f.subject != world.pages[0].title), train=()
            )
            broken = replace(broken, dev=(), test=())
        assert any(complaint in line for line in check_world(broken)), complaint
    assert len(cases) == 12


def _values(world: World, subject: str, relation: str) -> list[str]:
    return [fact.value.text for fact in world.facts if (fact.subject, fact.relation) == (subject, relation)]


def _all_answers(world: World, subject: str, relation: str, answer: str) -> list[str]:
    """By scanning every fact: forward all values of the subject, backward all subjects of the value."""
    values = _values(world, subject, relation)
    if answer != subject:
        return values
    return [fact.subject for fact in world.facts if fact.relation == relation and fact.value.text in values]


def _measure(text: str) -> float:
    """A sub-answer as a number, read from its words."""
    words = text.replace(",", "").split()
    if len(words) == 3 and words[1].isalpha() and words[2].isdigit():
        return datetime.strptime(text, "%d %B %Y").timestamp()
    return float(words[0])


def _limit(question: Question) -> float:
    value = str(question.metadata["value"])
    dated = len(question.metadata["decomposition"][0]["answer"].split()) == 3 and value.isdigit()
    return datetime(int(value), 1, 1).timestamp() if dated else float(value.replace(",", "").split()[0])


def _from_sub_answers(question: Question) -> str:
    hops, form = question.metadata["decomposition"], question.metadata["form"]
    found = [hop["answer"] for hop in hops]
    if form == "chain":
        return str(found[-1])
    if form in ("same", "is", "count"):
        value = question.metadata.get("value", found[0])
        alike = sum(answer == value for answer in found)
        return str(alike) if form == "count" else "yes" if alike == len(found) else "no"
    numbers = [_measure(answer) for answer in found]
    if form in ("least", "most"):
        best = min(numbers) if form == "least" else max(numbers)
        assert numbers.count(best) == 1
        return str(hops[numbers.index(best)]["support"])
    if form in ("less_than", "more_than"):
        return "yes" if (numbers[0] < numbers[1]) == (form == "less_than") else "no"
    sign = 1 if form == "count_below" else -1
    return str(sum(sign * number < sign * _limit(question) for number in numbers))
