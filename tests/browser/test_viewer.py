"""Click through the viewer: open, filter, search, unfold, share, compare, watch a training run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_builders import NESTED, PARALLEL, SIMPLE, make_config, make_crew, play, serving
from trace_builders import make_traces, write_evaluation, write_training

from jade.engine.record import append_traces
from jade.serve.keys import Keyring
from jade.serve.room import viewing_app
from jade.types import Prompt, Question


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_evaluation(folder / "bench")
    write_training(folder / "trained")
    append_traces(folder / "before.jsonl", make_traces(script=wrong_about(NESTED, PARALLEL)))
    append_traces(folder / "after.jsonl", make_traces(script=wrong_about(SIMPLE)))
    many = [Question(f"m{number}", f"Where was Ada Marlow born, time {number}?") for number in range(150)]
    append_traces(folder / "many.jsonl", make_traces(many))
    return folder


def wrong_about(*questions: str) -> Callable[[Prompt], str]:
    """A team that has the answer to these questions wrong, and works the others as always."""

    def script(prompt: Prompt) -> str:
        if prompt.role == "P" and prompt.user.rsplit("Question: ", 1)[1] in questions:
            return "<workflow>AG</workflow>"
        if prompt.role == "AG" and prompt.user.rsplit("Question: ", 1)[1] in questions:
            return "<answer>Gotham</answer>"
        return play(prompt)

    return script


@pytest.fixture(scope="module")
def url(runs: Path) -> Iterator[str]:
    app = viewing_app(make_crew().team, make_config(runs=[str(runs)]), Keyring())
    with serving(app) as address:
        yield f"{address}/ui/"


def rows(page: Any) -> list[str]:
    page.locator(".row:not(.loading)").first.wait_for()
    return list(page.locator(".row .row-question").all_inner_texts())


def open_run(page: Any, url: str, run: str, rest: str = "") -> None:
    page.goto(f"{url}#/traces/{run}{rest}")
    page.locator(".row:not(.loading)").first.wait_for()


def test_opening_a_run_shows_its_questions_and_the_first_trace(page: Any, url: str) -> None:
    open_run(page, url, "jade")
    assert rows(page) == [NESTED, PARALLEL, SIMPLE, "Who founded Fernhill?"]
    assert page.locator(".trace h1").inner_text() == NESTED
    assert page.locator(".list-summary").inner_text().startswith("4 questions")
    assert page.locator(".tree .node").count() == 3
    assert page.locator(".tree .step").count() == 13
    assert page.locator(".said.right").inner_text() == "Lune"


def test_filters_narrow_the_list_and_stay_in_the_address(page: Any, url: str) -> None:
    open_run(page, url, "jade")
    page.locator('select[name="verdict"]').select_option("wrong")
    page.locator(".list-summary", has_text="1 of 4").wait_for()
    assert rows(page) == ["Who founded Fernhill?"]
    assert "verdict=wrong" in page.url
    page.reload()
    assert rows(page) == ["Who founded Fernhill?"]
    page.locator('select[name="verdict"]').select_option("")
    page.locator('select[name="cost"]').select_option("min_rounds=2")
    page.locator(".list-summary", has_text="2 of 4").wait_for()
    assert sorted(rows(page)) == sorted([NESTED, PARALLEL])


def test_full_text_search_looks_into_passages(page: Any, url: str) -> None:
    open_run(page, url, "jade")
    page.get_by_role("searchbox", name="Search").fill("grey hills older")
    page.locator(".list-summary", has_text="1 of 4").wait_for()
    assert rows(page) == [PARALLEL]


def test_a_step_shows_prompt_output_action_and_passages(page: Any, url: str) -> None:
    open_run(page, url, "jade")
    page.locator('.step[data-step="0.1:3"]').click()
    detail = page.locator(".detail")
    assert detail.locator("h2").inner_text().lower() == "document selector"
    assert detail.locator("pre.box").first.inner_text() == "<id>Document0</id>"
    assert detail.locator(".passage.chosen .passage-title").all_inner_texts() == ["Ada Marlow"]
    assert detail.locator(".passage.left").count() == 2
    assert "Fernhill" in detail.locator(".passage.chosen mark").all_inner_texts()
    detail.get_by_text("What it was shown").click()
    assert "Document0 (Ada Marlow)" in detail.locator("details[open] pre").inner_text()
    assert "+0.70" in detail.locator(".sum").inner_text()


def test_a_link_leads_to_the_same_step(page: Any, url: str) -> None:
    open_run(page, url, "untrained", "/q1@0/0:2")
    assert page.locator(".detail .notice.bad").inner_text().startswith("Malformed: not of the form <id>")
    assert page.locator('.step[aria-selected="true"]').get_attribute("data-step") == "0:2"
    assert page.locator('.row[aria-selected="true"] .row-question').inner_text() == SIMPLE
    page.get_by_role("button", name="Close the step").click()
    assert page.locator(".detail").count() == 0
    assert page.url.endswith("/q1%400")


def test_nodes_fold_and_unfold_and_the_tree_is_worked_by_keys(page: Any, url: str) -> None:
    open_run(page, url, "jade")
    node = page.locator('.node[data-node="0.1"]')
    node.locator("> .node-head").click()
    assert node.get_attribute("aria-expanded") == "false"
    assert not page.locator('.step[data-step="0.1:0"]').is_visible()
    page.keyboard.press("ArrowRight")
    assert page.locator('.step[data-step="0.1:0"]').is_visible()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator('.step[aria-selected="true"]').get_attribute("data-step") == "0.1:2"
    assert page.locator(".detail .chip").first.inner_text() == "R"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert node.get_attribute("aria-expanded") == "false"


def test_replay_builds_the_tree_again_step_by_step(page: Any, url: str) -> None:
    open_run(page, url, "jade", "/q1@0")
    page.locator(".tree .step").nth(4).wait_for()
    page.get_by_role("button", name="Replay the steps").click()
    assert page.locator(".tree .step").count() < 5
    page.locator(".tree .step").nth(4).wait_for()
    assert page.locator(".tree .step .chip").all_inner_texts() == ["P", "QR", "R", "DS", "AG"]


def test_the_list_keeps_few_rows_and_fetches_as_it_scrolls(page: Any, url: str) -> None:
    open_run(page, url, "many")
    assert page.locator(".row").count() < 40
    page.locator(".list").evaluate("element => { element.scrollTop = element.scrollHeight }")
    page.locator(".row-question", has_text="time 149?").wait_for()
    assert page.locator(".row").count() < 40
    page.locator(".list").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.locator(".trace h1", has_text="time 1?").wait_for()


def test_a_growing_file_grows_in_the_list(page: Any, url: str, runs: Path) -> None:
    append_traces(runs / "growing.jsonl", make_traces([Question("g1", SIMPLE)]))
    open_run(page, url, "growing")
    append_traces(runs / "growing.jsonl", make_traces([Question("g2", NESTED)]))
    page.locator(".row-question", has_text=NESTED).wait_for()
    assert rows(page) == [SIMPLE, NESTED]


def test_two_runs_side_by_side(page: Any, url: str) -> None:
    page.goto(f"{url}#/compare/untrained/jade")
    page.locator(".compare .tree .step").first.wait_for()
    said = page.locator(".verdict").inner_text()
    assert "+0.000 F1" in said
    assert "0.750 → 0.750 over 4 shared questions" in said
    assert "0 won" in said
    assert "4 the same" in said
    assert "100% → 0%" in said
    page.locator(".row", has_text="Which school is older").click()
    page.locator(".tree-pane .trace h1", has_text="Which school").nth(1).wait_for()
    trees = page.locator(".tree-pane")
    assert trees.nth(0).locator(".step .chip").all_inner_texts() == ["P", "R", "DS", "AG"]
    assert trees.nth(1).locator(".step").count() == 13
    trees.nth(1).locator('.step[data-step="0:1"]').click()
    assert page.locator(".detail .subquestions li").count() == 2
    page.get_by_role("button", name="Swap the two runs").click()
    page.locator(".side-title.before", has_text="jade").wait_for()


def test_comparison_can_be_narrowed_to_what_changed(page: Any, url: str) -> None:
    page.goto(f"{url}#/compare/before/after")
    page.locator(".row").first.wait_for()
    verdict = page.locator(".verdict")
    assert "+0.250 F1" in verdict.inner_text()
    assert verdict.get_by_role("button").all_inner_texts() == ["2 won", "1 the same", "1 lost"]
    verdict.get_by_role("button", name="1 lost").click()
    page.wait_for_url("**change=worse*")
    page.locator(".tree-pane .trace h1", has_text=SIMPLE).nth(1).wait_for()
    assert rows(page) == [SIMPLE]
    assert verdict.get_by_role("button", name="1 lost").get_attribute("aria-pressed") == "true"
    verdict.get_by_role("button", name="1 lost").click()
    page.locator(".row").nth(3).wait_for()


def test_the_training_dashboard_draws_and_follows(page: Any, url: str, runs: Path) -> None:
    page.goto(f"{url}#/training/trained")
    page.locator(".chart .line").first.wait_for()
    assert page.locator(".pulse").inner_text() == "iteration 12"
    assert page.locator(".tile", has_text="Reward").locator("dd").inner_text() == "0.70"
    titles = page.locator(".chart:visible h2").all_inner_texts()
    assert {"Reward", "Workflows the planner chose", "Entropy", "Malformed output by role"} <= set(titles)
    assert page.locator(".chart .area").count() == 2
    assert "moved 0.9 nats" in page.locator(".events").inner_text()
    with (runs / "trained" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "iteration", "iteration": 13, "reward": 0.9, "plan/QDS": 1.0}) + "\n")
    page.locator(".pulse.live", has_text="iteration 13").wait_for()
    assert page.locator(".tile", has_text="Reward").locator("dd").inner_text() == "0.90"


def test_sampled_traces_are_reached_from_the_dashboard(page: Any, url: str) -> None:
    page.goto(f"{url}#/training/trained")
    page.get_by_role("link", name="iteration 11").click()
    page.locator(".row:not(.loading)").first.wait_for()
    assert page.locator(".list-summary").inner_text().startswith("4 of 8")


def test_the_page_works_at_400_pixels(page: Any, url: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    open_run(page, url, "jade")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert not page.locator(".tree-pane").is_visible()
    page.locator(".row").first.click()
    page.locator('.step[data-step="0:0"]').click()
    assert page.locator(".detail").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("button", name="Close the step").click()
    page.get_by_role("link", name="← Questions").click()
    assert page.locator(".list-pane").is_visible()
    page.goto(f"{url}#/compare/untrained/jade")
    page.locator(".row", has_text="Which school is older").click()
    page.locator(".tree-pane .step").first.wait_for()
    box = page.locator(".tree-pane").first.bounding_box()
    assert box["y"] < 400, "what was chosen is brought into sight"
    for view in ("compare/untrained/jade", "training/trained"):
        page.goto(f"{url}#/{view}")
        page.locator("main .view").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, view


def test_light_and_dark_are_chosen_and_kept(page: Any, url: str) -> None:
    open_run(page, url, "jade")
    page.get_by_role("button", name="Use dark colours").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    page.get_by_role("button", name="Use light colours").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_role("button", name="Use light colours").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, a, [role=tree], [role=listbox]')]
  .filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')))
  .map((e) => e.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_and_every_control_a_name(browser: Any, url: str, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1400, "height": 900})
    for view in ("traces/untrained/q1@0/0:2", "compare/untrained/jade/q2", "training/trained"):
        page.goto(f"{url}#/{view}")
        page.locator(".detail, .compare .step, .chart .line").first.wait_for()
        assert page.evaluate(CONTRAST) == [], view
        assert page.evaluate(NAMELESS) == [], view
    page.close()


def test_a_link_far_down_the_list_is_brought_into_sight(page: Any, url: str) -> None:
    open_run(page, url, "many", "/m140@0")
    page.locator('.row[aria-selected="true"] .row-question', has_text="time 140?").wait_for()
