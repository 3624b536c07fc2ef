"""Traces that nobody honest would write are shown, or refused in words; the page lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from serve_builders import SIMPLE, make_config, make_crew, serving
from trace_builders import make_traces

from jade.engine.record import trace_to_json
from jade.serve.keys import Keyring
from jade.serve.room import viewing_app
from jade.types import Question

DEPTH = 300
LONG = "How long is a question? " * 4000


def one() -> dict[str, Any]:
    return trace_to_json(make_traces([Question("q", SIMPLE, ("Fernhill",))])[0])


def deep() -> dict[str, Any]:
    """Every node has one child, three hundred times."""
    data, ids = one(), ["0" + ".1" * level for level in range(DEPTH)]
    data["nodes"] = [
        {"id": name, "parent": above, "question": f"level {level}", "written": "", "answer": "x"}
        for level, (name, above) in enumerate(zip(ids, [None, *ids], strict=False))
    ]
    data["steps"] = [{**data["steps"][0], "id": f"{name}:0", "node": name} for name in ids]
    return data


def circular() -> dict[str, Any]:
    """Two nodes are each other's parents, a third has none that exists."""
    data = one()
    node = data["nodes"][0]
    data["nodes"] = [node, *({**node, "id": a, "parent": b, "question": a} for a, b in ("xy", "yx", "zw"))]
    return data


def long() -> dict[str, Any]:
    data = one()
    data["question"]["text"] = data["nodes"][0]["question"] = data["answer"] = LONG
    return data


def wordless() -> dict[str, Any]:
    """Laid out as a trace, with steps that are none: it has a row, and cannot be read."""
    return one() | {"steps": [{"id": 7}]}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    for make in (deep, circular, long, wordless):
        (folder / f"{make.__name__}.jsonl").write_text(json.dumps(make()) + "\n")
    (folder / "typeless.jsonl").write_text(json.dumps(one() | {"answer": "x", "nodes": [7], "steps": []}) + "\n")
    app = viewing_app(make_crew().team, make_config(runs=[str(path) for path in folder.iterdir()]), Keyring())
    with serving(app) as address:
        yield f"{address}/ui/"


@pytest.mark.parametrize("width", [400, 1280])
def test_a_very_deep_tree_stays_on_the_page(page: Page, url: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{url}#/traces/deep/{'q@0'}")
    last = page.locator(".tree .step").nth(DEPTH - 1)
    last.scroll_into_view_if_needed()
    box = last.bounding_box()
    assert box is not None
    assert box["width"] > 200
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    last.click()
    expect(page.locator(".detail")).to_be_visible()


def test_nodes_in_a_circle_are_shown_once(page: Page, url: str) -> None:
    page.goto(f"{url}#/traces/circular")
    expect(page.locator(".tree .step .chip").first).to_have_text("P")
    assert page.locator(".tree .node").count() <= 4


def test_a_very_long_question_leaves_room_for_the_rest(page: Page, url: str) -> None:
    page.goto(f"{url}#/traces/long")
    expect(page.locator(".tree .step").first).to_be_visible()
    assert len(page.locator(".row-question").inner_text()) < 600
    top = page.locator(".tree").bounding_box()
    assert top is not None
    assert top["y"] < 800


def test_a_trace_that_is_none_is_refused_in_words(browser: Browser, url: str) -> None:
    page = browser.new_page()
    page.goto(f"{url}#/traces/typeless")
    expect(page.locator(".row")).to_contain_text("not a trace")
    expect(page.locator(".notice.bad")).to_contain_text("not a trace")
    page.close()


def test_a_trace_that_cannot_be_read_is_told_beside_the_other_of_its_pair(browser: Browser, url: str) -> None:
    page, errors = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}#/compare/wordless/circular")
    expect(page.locator(".row").first).to_be_visible()
    page.locator(".row").first.click()
    expect(page.locator(".tree-pane").first.locator(".notice.bad")).to_contain_text("not a trace")
    page.close()
    assert errors == []
