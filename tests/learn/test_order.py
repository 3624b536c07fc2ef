from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from learn_runs import make_config, make_crew, small_world

from jade.backbone.scripted import ScriptedBackbone
from jade.learn.warmstart.collect import Course, collect
from jade.learn.warmstart.examples import Example
from jade.learn.warmstart.gold import lesson_of
from jade.learn.warmstart.leaks import LeakReport
from jade.learn.warmstart.order import Reordered

QUERY = "When was the oldest school founded?"


async def examples_of(tiny_model: Path, shuffled: float, passes: int = 1) -> list[Example]:
    warmstart = {"shuffled": shuffled, "roles": ["QR", "DS"], "passes": passes}
    team = {"workflows": ["QR,R,DS,AG"]}
    config = make_config(tiny_model, {"retrieval": {"k": 6}, "team": team, "warmstart": warmstart})
    crew = make_crew(config, ScriptedBackbone(str))
    lessons = [lesson_of(question) for question in small_world().splits["train"]]
    return await collect(config, Course(crew.team, lessons, [], LeakReport(len(lessons), {})), crew.retriever)  # type: ignore[arg-type]


def of_role(role: str, examples: list[Example]) -> list[Example]:
    return [example for example in examples if example.prompt.role == role]


def documents(example: Example) -> list[str]:
    """What is shown, without its number."""
    return re.findall(r"^Document\d+ (.+)$", example.prompt.user, re.MULTILINE)


def chosen(example: Example) -> set[str]:
    shown = documents(example)
    return {shown[int(number)] for number in re.findall(r"Document(\d+)", example.reply)}


async def test_what_is_found_is_shown_in_another_order_that_is_the_same_every_time(tiny_model: Path) -> None:
    plain = make_crew(make_config(tiny_model), ScriptedBackbone(str)).retriever
    (found,) = await plain.search([QUERY], 8)
    (one, again), (other,) = (
        await Reordered(plain, 1).search([QUERY, QUERY], 8),
        await Reordered(plain, 2).search([QUERY], 8),
    )
    by_id = sorted(passage.id for passage in found)
    assert sorted(passage.id for passage in one) == sorted(passage.id for passage in other) == by_id
    assert one == again
    assert one != other
    assert one != found


async def test_in_another_order_the_same_passages_are_to_be_kept_and_the_same_queries_written(tiny_model: Path) -> None:
    plain, mixed = await examples_of(tiny_model, 0.0), await examples_of(tiny_model, 1.0)
    assert of_role("QR", plain) == of_role("QR", mixed)
    pairs = list(zip(of_role("DS", plain), of_role("DS", mixed), strict=True))
    assert len(pairs) > 20
    for one, other in pairs:
        assert sorted(documents(one)) == sorted(documents(other))
        assert chosen(one) == chosen(other)
    moved = sum(documents(one) != documents(other) for one, other in pairs)
    assert moved > 0.9 * len(pairs)


async def test_in_another_order_every_place_is_good_as_often(tiny_model: Path) -> None:
    def first_share(examples: list[Example]) -> float:
        places = Counter(re.findall(r"Document(\d+)", example.reply)[0] for example in of_role("DS", examples))
        return places["0"] / places.total()

    assert first_share(await examples_of(tiny_model, 0.0)) > 0.5
    assert first_share(await examples_of(tiny_model, 1.0, passes=3)) < 0.4


@pytest.mark.parametrize("share", [0.0, 0.5])
async def test_a_share_of_the_questions_is_shown_in_another_order(tiny_model: Path, share: float) -> None:
    found = [documents(example) for example in of_role("DS", await examples_of(tiny_model, 0.0))]
    mixed = [documents(example) for example in of_role("DS", await examples_of(tiny_model, share))]
    moved = sum(one != other for one, other in zip(found, mixed, strict=True))
    assert moved / len(found) == pytest.approx(share, abs=0.2)
