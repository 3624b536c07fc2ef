"""The page by keyboard alone, and readable everywhere: every control reached, named and seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from serve_builders import NESTED, PARALLEL, SIMPLE, make_app, make_config, serving
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
    with serving(make_app(config=config)) as address:
        yield f"{address}/ui/"


def tab_to(page: Page, selector: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED % selector):
            return
    raise AssertionError(f"no way by Tab to {selector}")


def test_a_question_is_found_opened_and_left_by_keys_alone(page: Page, url: str) -> None:
    page.goto(f"{url}#/traces/jade")
    expect(page.locator(".tree .step").first).to_be_visible()
    expect(page.locator('.row[aria-selected="true"]')).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED % ".skip"), "the first stop leads past the bar"
    tab_to(page, '[type="search"]')
    tab_to(page, "select")
    tab_to(page, ".list")
    for _ in range(2):  # at once: the second does not wait until the first trace has come
        page.keyboard.press("ArrowDown")
    expect(page.locator(".trace h1")).to_have_text(SIMPLE)
    expect(page.locator(".tree .step")).to_have_count(5)
    tab_to(page, '[aria-label="Replay the steps"]')
    tab_to(page, '[role="treeitem"]')
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".detail h2")).to_have_text("planner", ignore_case=True)
    tab_to(page, '[aria-label="Close the step"]')
    page.keyboard.press("Escape")
    expect(page.locator(".detail")).to_have_count(0)
    expect(page.locator('.step[data-step="0:0"]')).to_be_focused()


def test_a_comparison_is_narrowed_by_keys_alone(page: Page, url: str) -> None:
    page.goto(f"{url}#/compare/untrained/jade")
    expect(page.locator(".compare .tree .step").first).to_be_visible()
    tab_to(page, ".split-key.same")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("change=same"))


def test_a_question_is_asked_with_an_effort_by_keys_alone(page: Page, url: str) -> None:
    page.goto(f"{url}#/ask")
    expect(page.get_by_label("Your question")).to_be_focused()
    page.keyboard.type(PARALLEL)
    tab_to(page, '[aria-label="Effort"]')
    page.keyboard.press("ArrowDown")
    tab_to(page, ".button.primary")
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_text("Brackwater")
    expect(page.locator(".figures")).to_contain_text("turn 0.20, search 0.20 prices")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_asking_and_the_api_page_have_contrast(browser: Browser, url: str, scheme: Literal["light", "dark"]) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{url}#/ask")
    page.get_by_label("Your question").fill(NESTED)
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    page.locator('.step[data-step="0.1:3"]').click()
    expect(page.locator(".tag.mark").first).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    page.goto(url.replace("/ui/", "/docs"))
    expect(page.locator(".endpoint").first).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    page.close()
