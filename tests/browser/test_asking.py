"""Ask from the page, watch the tree grow, and see that nothing anyone wrote is ever run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from serve_builders import NESTED, PARALLEL, Held, SmallRetriever, make_app, make_config, make_crew, play, serving
from trace_builders import make_traces

from jade.backbone.scripted import ScriptedBackbone
from jade.config import TeamConfig
from jade.engine.record import append_traces
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Passage, Prompt, Question
from patience import until

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(make_app()) as address:
        yield f"{address}/ui/"


def ask(page: Page, question: str) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()


def test_the_tree_grows_while_the_team_works(page: Page) -> None:
    team = Held(free=3)
    with serving(make_app(make_crew(team))) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, PARALLEL)
        expect(page.locator(".step.busy").first).to_be_visible()
        expect(page.locator(".ask-line")).to_contain_text("The team is working")
        assert page.locator(".tree .step").count() < 13
        team.let_go.set()
        expect(page.locator(".said")).to_have_text("Brackwater")
        expect(page.locator(".tree .step")).to_have_count(13)
        expect(page.locator(".step.busy")).to_have_count(0)
        expect(page.locator(".citation")).to_have_count(2)
        page.locator('.step[data-step="0.1:4"]').click()
        expect(page.locator(".detail .passage mark").first).to_have_text("1850")


def test_a_step_can_be_looked_into_while_the_team_works(page: Page) -> None:
    team = Held(free=6)  # the planner, the decomposer, and all four that work the first part
    with serving(make_app(make_crew(team))) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        page.locator('.step[data-step="0.1:2"]').click()
        seen = page.locator(".ask:not(:has(.said)) .detail .tag.mark", has_text="holds the answer")
        expect(seen.first).to_be_visible()
        team.let_go.set()
        expect(page.locator(".said")).to_have_text("Lune")
        expect(page.locator('.step[aria-selected="true"]')).to_have_attribute("data-step", "0.1:2")


def test_what_was_asked_has_a_link_of_its_own(page: Page, url: str) -> None:
    page.goto(f"{url}#/ask")
    ask(page, NESTED)
    page.get_by_role("link", name="Link to this trace").click()
    expect(page.locator(".trace h1")).to_have_text(NESTED)
    expect(page).to_have_url(re.compile("/traces/live/"))
    expect(page.locator(".row").first).to_be_visible()


def test_stop_ends_the_teams_work(page: Page) -> None:
    team = Held(free=1)
    with serving(make_app(make_crew(team))) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        expect(page.locator('.step.busy[data-step="0:1"]')).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".notice.warn")).to_have_text("Stopped.")
        expect(page.locator(".step.busy")).to_have_count(0)
        expect(page.locator('.step[data-step="0:1"]')).to_contain_text("not finished")
        until(lambda: "jade_questions_active 0" in httpx.get(f"{address}/metrics").text)
    assert team.num_asked == 2


def test_a_team_that_fails_says_why(page: Page) -> None:
    def broken(prompt: Prompt) -> str:
        raise RuntimeError("the model is gone")

    with serving(make_app(make_crew(broken))) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        expect(page.locator(".notice.bad")).to_contain_text("the model is gone")
        expect(page.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
        page.get_by_role("link", name="Link to this trace").click()
        expect(page.locator(".tree-pane .notice.bad")).to_contain_text("the model is gone")


def test_a_key_is_asked_for_and_then_used(page: Page, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice 0123456789abcdef-secret\n")
    with serving(make_app(config=make_config(keys_file=str(keys)))) as address:
        page.clock.install()
        page.goto(f"{address}/ui/")
        expect(page.get_by_role("combobox")).to_have_count(0)
        page.get_by_label("API key").fill("not the right key at all")
        expect(page.get_by_role("alert")).to_have_count(0)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not known")
        expect(page.get_by_label("API key")).to_have_value("")
        page.get_by_label("API key").fill("0123456789abcdef-secret")
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.clock.run_for(60_000)
        page.evaluate("fetch('/healthz').then((reply) => reply.text())")
        assert requests == [f"{address}/healthz"], "a look for new runs would ask for the key anew"
        page.keyboard.press("Enter")
        expect(page.get_by_label("API key")).to_have_count(0)
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        expect(page.locator(".said")).to_have_text("Lune")
        assert "secret" not in page.url


def evil_crew() -> Crew:
    """Script in the documents, in the model's output and in the file names."""
    pages = (Passage("p0", EVIL, f"{EVIL} Fernhill {EVIL}", EVIL),)

    def script(prompt: Prompt) -> str:
        if prompt.role in ("AG", "AS"):
            return f"<answer>{EVIL}</answer>"
        return EVIL if prompt.role == "QR" else play(prompt)

    return Crew(build_team(TeamConfig()), Cast(ScriptedBackbone(script)), SmallRetriever(pages))


def test_script_in_a_question_a_document_or_an_output_is_text(page: Page, tmp_path: Path) -> None:
    append_traces(tmp_path / "t.jsonl", make_traces([Question(EVIL, EVIL, (EVIL,), EVIL)]))
    config = make_config(runs=[str(tmp_path / "t.jsonl")])
    with serving(make_app(evil_crew(), config)) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, EVIL)
        expect(page.locator(".said")).to_have_text(EVIL)
        for step in page.locator(".tree .step").all():
            step.click()
            expect(step).to_have_attribute("aria-selected", "true")
            expect(page.locator(".detail")).to_be_visible()
            assert page.locator("main img, main script").count() == 0
        page.goto(f"{address}/ui/#/traces/t")
        expect(page.locator(".trace h1", has_text=EVIL)).to_be_visible()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.querySelectorAll('script').length") == 1


def test_the_browser_itself_refuses_markup_from_strings(browser: Browser, url: str) -> None:
    """The policy stands even if some later change of the page forgets itself."""
    page = browser.new_page()
    page.goto(url)
    refused = page.evaluate(
        "() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return false } catch { return true } }"
    )
    page.close()
    assert refused


def test_the_api_page_lists_the_endpoints(page: Page, url: str) -> None:
    page.goto(url.replace("/ui/", "/docs"))
    expect(page.locator(".endpoint code", has_text="/v1/chat/completions")).to_be_visible()
    expect(page.locator(".endpoint").nth(9)).to_be_visible()
