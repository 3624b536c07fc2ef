"""Click through the viewer: open, filter, search, unfold, share, compare, watch a training run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from serve_builders import NESTED, PARALLEL, SIMPLE, make_config, make_crew, play, serving
from trace_builders import make_traces, write_evaluation, write_training

from jade.engine.record import append_traces
from jade.serve.keys import Keyring
from jade.serve.room import viewing_app
from jade.types import Prompt, Question
from patience import until


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


def expect_rows(page: Page, *questions: str) -> None:
    expect(page.locator(".row .row-question")).to_have_text(list(questions))


def open_run(page: Page, url: str, run: str, rest: str = "") -> None:
    page.goto(f"{url}#/traces/{run}{rest}")
    expect(page.locator(".row:not(.loading)").first).to_be_visible()


def step(page: Page, name: str) -> Locator:
    return page.locator(f'.step[data-step="{name}"]')


def selected_step(page: Page) -> Locator:
    return page.locator('.step[aria-selected="true"]')


def test_opening_a_run_shows_its_questions_and_the_first_trace(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    expect_rows(page, NESTED, PARALLEL, SIMPLE, "Who founded Fernhill?")
    expect(page.locator(".trace h1")).to_have_text(NESTED)
    expect(page.locator(".list-summary")).to_contain_text("4 questions")
    expect(page.locator(".tree .node")).to_have_count(3)
    expect(page.locator(".tree .step")).to_have_count(13)
    expect(page.locator(".said.right")).to_have_text("Lune")


def test_filters_narrow_the_list_and_stay_in_the_address(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    page.locator('select[name="verdict"]').select_option("wrong")
    expect_rows(page, "Who founded Fernhill?")
    expect(page.locator(".list-summary")).to_contain_text("1 of 4")
    expect(page).to_have_url(re.compile("verdict=wrong"))
    page.reload()
    expect_rows(page, "Who founded Fernhill?")
    page.locator('select[name="verdict"]').select_option("")
    expect_rows(page, NESTED, PARALLEL, SIMPLE, "Who founded Fernhill?")
    page.locator('select[name="cost"]').select_option("min_rounds=2")
    expect_rows(page, NESTED, PARALLEL)
    expect(page.locator(".list-summary")).to_contain_text("2 of 4")


def test_a_search_without_a_match_says_so(page: Page, url: str) -> None:
    page.goto(f"{url}#/traces/jade?q=nobodysaidthis")
    expect(page.locator(".tree-pane")).to_contain_text("Nothing matches")


def test_full_text_search_looks_into_passages(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    page.get_by_role("searchbox", name="Search").fill("grey hills older")
    expect_rows(page, PARALLEL)
    expect(page.locator(".list-summary")).to_contain_text("1 of 4")


def test_a_step_shows_prompt_output_action_and_passages(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    step(page, "0.1:3").click()
    detail = page.locator(".detail")
    expect(detail.locator("h2")).to_have_text("document selector", ignore_case=True)
    expect(detail.locator("pre.box").first).to_have_text("<id>Document0</id>")
    expect(detail.locator(".passage.chosen .passage-title")).to_have_text(["Ada Marlow"])
    expect(detail.locator(".passage.left")).to_have_count(2)
    expect(detail.locator(".passage.chosen mark", has_text="Fernhill").first).to_be_visible()
    detail.get_by_text("What it was shown").click()
    expect(detail.locator("details[open] pre")).to_contain_text("Document0 (Ada Marlow)")
    expect(detail.locator(".sum")).to_contain_text("+0.70")


def test_a_link_leads_to_the_same_step(page: Page, url: str) -> None:
    open_run(page, url, "untrained", "/q1@0/0:2")
    expect(page.locator(".detail .notice.bad")).to_have_text(re.compile("^Malformed: not of the form <id>"))
    expect(selected_step(page)).to_have_attribute("data-step", "0:2")
    expect(page.locator('.row[aria-selected="true"] .row-question')).to_have_text(SIMPLE)
    page.get_by_role("button", name="Close the step").click()
    expect(page.locator(".detail")).to_have_count(0)
    expect(page).to_have_url(re.compile("/q1%400$"))


def test_that_a_link_was_copied_is_seen(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy a link to this").click()
    expect(page.locator(".trace-tools").get_by_text("Link copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_half_the_golds_words_are_not_shown_as_right(page: Page, tmp_path: Path) -> None:
    golds = {"all": "Fernhill", "half": "Fernhill upon Lune", "none": "Brackwater"}
    questions = [Question(name, SIMPLE, (gold,)) for name, gold in golds.items()]
    append_traces(tmp_path / "run.jsonl", make_traces(questions))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as address:
        for name, verdict in zip(golds, ("right", "partly", "wrong"), strict=True):
            page.goto(f"{address}/ui/#/traces/run/{name}@0")
            expect(page.locator(f".said.{verdict}")).to_have_text("Fernhill")


def test_nodes_fold_and_unfold_and_the_tree_is_worked_by_keys(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    node = page.locator('.node[data-node="0.1"]')
    node.locator("> .node-head").click()
    expect(node).to_have_attribute("aria-expanded", "false")
    expect(step(page, "0.1:0")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(step(page, "0.1:0")).to_be_visible()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(selected_step(page)).to_have_attribute("data-step", "0.1:2")
    expect(page.locator(".detail .chip").first).to_have_text("R")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(node).to_have_attribute("aria-expanded", "false")


COUNT_STEPS = """tree => {
  window.counts = new Set()
  const count = () => window.counts.add(tree.querySelectorAll('.step').length)
  new MutationObserver(count).observe(tree, { childList: true, subtree: true })
}"""


def test_replay_builds_the_tree_again_step_by_step(page: Page, url: str) -> None:
    open_run(page, url, "jade", "/q1@0")
    expect(page.locator(".tree .step")).to_have_count(5)
    page.locator(".tree").evaluate(COUNT_STEPS)
    page.get_by_role("button", name="Replay the steps").click()
    until(lambda: page.evaluate("[...window.counts].length") == 6)
    assert page.evaluate("[...window.counts]") == [0, 1, 2, 3, 4, 5]
    expect(page.locator(".tree .step .chip")).to_have_text(["P", "QR", "R", "DS", "AG"])


def test_a_link_to_a_run_that_is_gone_shows_no_questions_of_another(browser: Browser, url: str) -> None:
    context = browser.new_context()  # of its own: the browser writes refused requests to the console
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    open_run(page, url, "before")
    page.goto(f"{url}#/traces/gone/some")
    expect(page.locator(".list-summary")).to_have_text("there is no run of that name here")
    expect(page.locator(".tree-pane .notice")).to_have_text("there is no run of that name here")
    expect(page.locator(".row")).to_have_count(0)
    page.goto(f"{url}#/traces/gone")
    expect(page.locator(".tree-pane .empty")).to_contain_text("there is no run of that name here")
    open_run(page, url, "after")
    context.close()
    assert errors == []


def test_the_list_keeps_few_rows_and_fetches_as_it_scrolls(page: Page, url: str) -> None:
    open_run(page, url, "many")
    assert page.locator(".row").count() < 40
    page.locator(".list").evaluate("element => { element.scrollTop = element.scrollHeight }")
    expect(page.locator(".row-question", has_text="time 149?")).to_be_visible()
    assert page.locator(".row").count() < 40
    page.locator(".list").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".trace h1")).to_have_text(re.compile("time 1[?]"))


def test_a_file_without_traces_says_so_until_there_are_some(page: Page, tmp_path: Path) -> None:
    (tmp_path / "begun.jsonl").touch()
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path / "begun.jsonl")]), Keyring())
    with serving(app) as address:
        page.goto(f"{address}/ui/")
        expect(page.locator(".tree-pane")).to_contain_text("No traces yet")
        append_traces(tmp_path / "begun.jsonl", make_traces([Question("b1", SIMPLE)]))
        expect_rows(page, SIMPLE)
        expect(page.locator(".tree-pane")).not_to_contain_text("No traces yet")


def test_a_growing_file_grows_in_the_list(page: Page, url: str, runs: Path) -> None:
    append_traces(runs / "growing.jsonl", make_traces([Question("g1", SIMPLE)]))
    open_run(page, url, "growing")
    append_traces(runs / "growing.jsonl", make_traces([Question("g2", NESTED)]))
    expect_rows(page, SIMPLE, NESTED)


def test_two_runs_side_by_side(page: Page, url: str) -> None:
    page.goto(f"{url}#/compare/untrained/jade")
    expect(page.locator(".compare .tree .step").first).to_be_visible()
    for said in ("+0.000 F1", "0.750 → 0.750 over 4 shared questions", "0 won", "4 the same", "100% → 0%"):
        expect(page.locator(".verdict")).to_contain_text(said)
    page.locator(".row", has_text="Which school is older").click()
    trees = page.locator(".tree-pane")
    expect(trees.locator(".trace h1")).to_have_text([PARALLEL, PARALLEL])
    expect(trees.nth(0).locator(".step .chip")).to_have_text(["P", "R", "DS", "AG"])
    expect(trees.nth(1).locator(".step")).to_have_count(13)
    trees.nth(1).locator('.step[data-step="0:1"]').click()
    expect(page.locator(".detail .subquestions li")).to_have_count(2)
    page.get_by_role("button", name="Swap the two runs").click()
    expect(page.locator(".side-title.before")).to_contain_text("jade")


def test_questions_of_two_datasets_that_share_an_id_are_compared_each_for_itself(page: Page, tmp_path: Path) -> None:
    asked = [Question("test_0", SIMPLE, dataset="nq"), Question("test_0", PARALLEL, dataset="musique")]
    for name in ("before", "after"):
        append_traces(tmp_path / f"{name}.jsonl", make_traces(asked))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as address:
        page.goto(f"{address}/ui/#/compare/before/after")
        expect(page.locator(".tree-pane .trace h1")).to_have_text([SIMPLE, SIMPLE])
        expect(page.locator('.row[aria-selected="true"]')).to_have_count(1)
        page.locator(".row", has_text=PARALLEL).click()
        expect(page.locator(".tree-pane .trace h1")).to_have_text([PARALLEL, PARALLEL])
        page.reload()
        expect(page.locator(".tree-pane .trace h1")).to_have_text([PARALLEL, PARALLEL])


def test_comparison_can_be_narrowed_to_what_changed(page: Page, url: str) -> None:
    page.goto(f"{url}#/compare/before/after")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("+0.250 F1")
    expect(verdict.get_by_role("button")).to_have_text(["2 won", "1 the same", "1 lost"])
    verdict.get_by_role("button", name="1 lost").click()
    expect(page).to_have_url(re.compile("change=worse"))
    expect_rows(page, SIMPLE)
    expect(page.locator(".tree-pane .trace h1")).to_have_text([SIMPLE, SIMPLE])
    expect(verdict.get_by_role("button", name="1 lost")).to_have_attribute("aria-pressed", "true")
    verdict.get_by_role("button", name="1 lost").click()
    expect(page.locator(".row")).to_have_count(4)


def test_the_training_dashboard_draws_and_follows(page: Page, url: str, runs: Path) -> None:
    page.goto(f"{url}#/training/trained")
    expect(page.locator(".chart .line").first).to_be_attached()
    expect(page.locator(".pulse")).to_have_text("iteration 12")
    reward = page.locator(".tile", has_text="Reward").locator("dd")
    expect(reward).to_have_text("0.70")
    for title in ("Reward", "Workflows the planner chose", "Entropy", "Malformed output by role"):
        expect(page.locator(".chart:visible").get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.locator(".chart .area")).to_have_count(2)
    expect(page.locator(".events")).to_contain_text("moved 0.9 nats")
    expect(page.locator(".events")).to_contain_text("DS tries little any more")
    with (runs / "trained" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "iteration", "iteration": 13, "reward": 0.9, "plan/QDS": 1.0}) + "\n")
    expect(page.locator(".pulse.live")).to_contain_text("iteration 13")
    expect(reward).to_have_text("0.90")


def test_sampled_traces_are_reached_from_the_dashboard(page: Page, url: str) -> None:
    page.goto(f"{url}#/training/trained")
    page.get_by_role("link", name="iteration 11").click()
    expect(page.locator(".row:not(.loading)").first).to_be_visible()
    expect(page.locator(".list-summary")).to_have_text(re.compile("^4 of 8"))


def width_of(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_the_page_works_at_400_pixels(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    open_run(page, url, "jade")
    assert width_of(page) <= 400
    expect(page.locator(".tree-pane")).to_be_hidden()
    page.locator(".row").first.click()
    step(page, "0:0").click()
    expect(page.locator(".detail")).to_be_visible()
    assert width_of(page) <= 400
    page.get_by_role("button", name="Close the step").click()
    page.get_by_role("link", name="← Questions").click()
    expect(page.locator(".list-pane")).to_be_visible()
    page.goto(f"{url}#/compare/untrained/jade")
    page.locator(".row", has_text="Which school is older").click()
    expect(page.locator(".tree-pane .trace h1").first).to_have_text(PARALLEL)
    chosen = page.locator(".tree-pane").first
    until(lambda: chosen.evaluate("pane => pane.getBoundingClientRect().top") < 400)  # it is brought into sight
    for view in ("compare/untrained/jade", "training/trained"):
        page.goto(f"{url}#/{view}")
        expect(page.locator("main .view")).to_be_visible()
        assert width_of(page) <= 400, view


def test_light_and_dark_are_chosen_and_kept(page: Page, url: str) -> None:
    open_run(page, url, "jade")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Use dark colours").click()
    expect(page.get_by_role("button", name="Use light colours")).to_be_visible()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Use light colours")).to_be_visible()
    assert page.evaluate(background) == dark
    page.get_by_role("button", name="Use light colours").click()
    expect(page.get_by_role("button", name="Use dark colours")).to_be_visible()
    assert page.evaluate(background) == light


CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, a, [role=tree], [role=listbox]')]
  .filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')))
  .map((e) => e.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_and_every_control_a_name(
    browser: Browser, url: str, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1400, "height": 900})
    views = {
        "traces/untrained/q1@0/0:2": ".traces .detail",
        "compare/untrained/jade/multi%2Fq2": ".compare .step",
        "training/trained": ".training .chart .line",
    }
    for view, shown in views.items():
        page.goto(f"{url}#/{view}")
        expect(page.locator(shown)).not_to_have_count(0)
        assert page.evaluate(CONTRAST) == [], view
        assert page.evaluate(NAMELESS) == [], view
    page.close()


def test_a_link_far_down_the_list_is_brought_into_sight(page: Page, url: str) -> None:
    open_run(page, url, "many", "/m140@0")
    expect(page.locator('.row[aria-selected="true"] .row-question')).to_have_text(re.compile("time 140[?]"))
