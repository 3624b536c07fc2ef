"""Open a report in a browser: tables, pictures really drawn, traces that unfold, and nothing from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from patience import until

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "evaluate"))

from report_fixture import HOSTILE, write_run

from jade.evaluate.arms import read_arms
from jade.evaluate.report import write_report

LIGHT_PAPER, DARK_PAPER = "rgb(255, 255, 255)", "rgb(23, 27, 33)"
OpenReport = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two pooled runs, one of them under two wordings of the prompts."""
    folder = tmp_path_factory.mktemp("report")
    write_run(folder / "a")
    write_run(folder / "b")
    write_run(folder / "c", variants=1, methods=("jade",))
    arms = read_arms([f"both={folder}/a", f"both={folder}/b", f"varied={folder}/c"])
    write_report(arms, folder / "out", resamples=200, baseline="varied", focus="jade (both)")
    return (folder / "out/report.html").as_uri()


@pytest.fixture
def open_report(browser: Any, address: str) -> Iterator[OpenReport]:
    """Opens the report in a window of some width; it may neither complain nor ask for anything but itself."""
    contexts: list[Any] = []
    complaints: list[str] = []
    asked: set[str] = set()

    def watch(message: Any) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def refuse(dialog: Any) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def open_page(width: int = 1280, scheme: str = "light") -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("console", watch)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", refuse)
        page.on("request", lambda request: asked.add(request.url.partition("#")[0]))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url for url in asked if not url.startswith("data:")} == {address}


def cells(page: Any, title: str) -> list[list[str]]:
    """The texts of a table, row by row, finer lines left out."""
    section = page.locator("section", has=page.locator("h2", has_text=title)).first
    read = "rows => rows.map(row => [...row.cells].map(cell => cell.firstChild.textContent))"
    return list(section.locator("tr").evaluate_all(read))


def test_the_tables_say_what_was_measured(open_report: OpenReport) -> None:
    page = open_report()
    assert page.title() == "4 methods on 2 benchmarks"
    assert cells(page, "Effectiveness") == [
        ["method", "NQ", "HotpotQA", "mean"],
        ["No retrieval (both)", "0.0", "0.0", "0.0"],
        ["Vanilla RAG (both)", "50.0", "50.0", "50.0"],
        ["JADE (both)", "80.0", "80.0", "80.0"],
        ["varied", "80.0", "80.0", "80.0"],
    ]
    assert cells(page, "Against varied")[2] == ["Vanilla RAG (both)", "−30.0", "−30.0", "−30.0"]
    assert cells(page, "Runs one by one")[1] == ["No retrieval (both): a", "0.0", "0.0", "0.0"]
    robust = cells(page, "Robustness")
    assert robust[0][:4] == ["method", "benchmark", "wordings", "shipped"]
    assert robust[1][:4] == ["varied", "NQ", "2", "80.0"]
    best = page.locator("section").first.locator("strong").all_inner_texts()
    assert best == ["80.0"] * 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_picture_is_really_drawn_in_either_theme(open_report: OpenReport, scheme: str) -> None:
    page = open_report(scheme=scheme)
    images = page.locator("figure img")
    expect(images).to_have_count(4)
    until(lambda: all(images.evaluate_all("all => all.map(img => img.complete)")))
    drawn = images.evaluate_all("all => all.map(img => [img.complete, img.naturalWidth, img.naturalHeight])")
    assert all(complete and width > 200 and height > 100 for complete, width, height in drawn)
    sources = page.locator("figure source").evaluate_all("all => all.map(source => source.srcset)")
    shown = images.evaluate_all("all => all.map(img => img.currentSrc)")
    assert [image in sources for image in shown] == [scheme == "dark"] * 4
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == (DARK_PAPER if scheme == "dark" else LIGHT_PAPER)
    assert all(text for text in images.evaluate_all("all => all.map(img => img.alt)"))


def test_example_traces_unfold(open_report: OpenReport) -> None:
    page = open_report()
    examples = page.locator("details")
    expect(examples).to_have_count(14)
    trace = examples.first.locator("pre")
    expect(trace).to_be_hidden()
    examples.first.locator("summary").click()
    expect(trace).to_be_visible()
    assert [line.split()[0] for line in trace.inner_text().splitlines()[1:4]] == ["P", "QDP", "Part"]
    page.keyboard.press("Enter")
    expect(trace).to_be_hidden()


def test_what_models_and_questions_say_is_shown_as_text(open_report: OpenReport) -> None:
    page = open_report()
    assert page.locator("script").count() == 0
    assert HOSTILE in page.locator("summary").first.inner_text()
    wrong = page.locator("h3", has_text="Wrong").locator("xpath=following-sibling::details").first
    wrong.locator("summary").click()
    expect(wrong.locator("p b")).to_have_text("nobody")
    assert wrong.locator("pre *").count() == 0


@pytest.mark.parametrize("width", [400, 768, 1280])
def test_nothing_but_the_tables_scrolls_sideways(open_report: OpenReport, width: int) -> None:
    page = open_report(width)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.locator(".scroll").evaluate_all("all => all.filter(box => box.scrollWidth > box.clientWidth).length")
    assert (wide > 0) is (width < 1280)
    images = page.locator("figure img").evaluate_all("all => all.map(img => img.getBoundingClientRect().right)")
    assert max(images) <= width


def test_on_a_phone_the_methods_names_stay_while_the_numbers_scroll(open_report: OpenReport) -> None:
    page = open_report(400)
    table = page.locator(".scroll", has=page.locator("th", has_text="questions/s")).first
    name = table.locator("tbody th").first
    before = name.bounding_box()
    table.evaluate("box => box.scrollLeft = 200")
    until(lambda: table.evaluate("box => box.scrollLeft") > 100)
    assert name.bounding_box() == before
