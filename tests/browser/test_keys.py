"""The page by keyboard alone, and readable everywhere: every control reached, named and seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_builders import NESTED, PARALLEL, SIMPLE, make_app, make_config, make_crew, serving
from trace_builders import make_traces, write_evaluation

from jade.engine.record import append_traces

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
FOCUSED = "() => document.activeElement.matches(%r)"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    write_evaluation(folder / "bench")
    append_traces(folder / "asked.jsonl", make_traces())
    config = make_config(runs=[str(folder)])
    with serving(make_app(make_crew(delay_seconds=0.02), config)) as address:
        yield f"{address}/ui/"


def tab_to(page: Any, selector: str, limit: int = 40) -> None:
    for _ in range(limit):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED % selector):
            return
    raise AssertionError(f"no way by Tab to {selector}")


def test_a_question_is_found_opened_and_left_by_keys_alone(page: Any, url: str) -> None:
    page.goto(f"{url}#/traces/jade")
    page.locator(".tree .step").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED % ".skip"), "the first stop leads past the bar"
    tab_to(page, '[type="search"]')
    tab_to(page, "select")
    tab_to(page, ".list")
    for _ in range(2):  # at once: the second does not wait until the first trace has come
        page.keyboard.press("ArrowDown")
    page.locator(".trace h1", has_text=SIMPLE).wait_for()
    tab_to(page, '[aria-label="Replay the steps"]')
    tab_to(page, '[role="treeitem"]')
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".detail h2", has_text="planner").wait_for()
    tab_to(page, '[aria-label="Close the step"]')
    page.keyboard.press("Escape")
    page.locator(".detail").wait_for(state="detached")
    assert page.evaluate("document.activeElement.dataset.step") == "0:0"


def test_a_comparison_is_narrowed_by_keys_alone(page: Any, url: str) -> None:
    page.goto(f"{url}#/compare/untrained/jade")
    page.locator(".verdict button").first.wait_for()
    tab_to(page, ".split-key.same")
    page.keyboard.press("Enter")
    page.wait_for_url("**change=same*")


def test_a_question_is_asked_with_an_effort_by_keys_alone(page: Any, url: str) -> None:
    page.goto(f"{url}#/ask")
    page.locator("textarea:focus").wait_for()
    page.keyboard.type(PARALLEL)
    tab_to(page, '[aria-label="Effort"]')
    page.keyboard.press("ArrowDown")
    tab_to(page, ".button.primary")
    page.keyboard.press("Enter")
    page.locator(".said", has_text="Brackwater").wait_for()
    assert "turn 0.20, search 0.20 prices" in " ".join(page.locator(".figures").inner_text().split())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_asking_and_the_api_page_have_contrast(browser: Any, url: str, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{url}#/ask")
    page.get_by_label("Your question").fill(NESTED)
    page.keyboard.press("Enter")
    page.locator(".said").wait_for()
    assert page.evaluate(CONTRAST) == []
    page.locator('.step[data-step="0.1:3"]').click()
    page.locator(".tag.mark").first.wait_for()
    assert page.evaluate(CONTRAST) == []
    page.goto(url.replace("/ui/", "/docs"))
    page.locator(".endpoint").first.wait_for()
    assert page.evaluate(CONTRAST) == []
    page.close()
