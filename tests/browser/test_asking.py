"""Ask from the page, watch the tree grow, and see that nothing anyone wrote is ever run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_builders import NESTED, PARALLEL, SmallRetriever, make_app, make_config, make_crew, num_calls, play, serving
from trace_builders import make_traces

from jade.backbone.scripted import ScriptedBackbone
from jade.config import TeamConfig
from jade.engine.record import append_traces
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Passage, Prompt, Question

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(make_app(make_crew(delay_seconds=0.12))) as address:
        yield f"{address}/ui/"


def ask(page: Any, question: str) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()


def test_the_tree_grows_while_the_team_works(page: Any, url: str) -> None:
    page.goto(f"{url}#/ask")
    ask(page, PARALLEL)
    page.locator(".step.busy").first.wait_for()
    page.locator(".ask-line", has_text="The team is working").wait_for()
    early = page.locator(".tree .step").count()
    assert early < 13
    page.locator(".said", has_text="Brackwater").wait_for()
    assert page.locator(".tree .step").count() == 13
    assert page.locator(".step.busy").count() == 0
    assert page.locator(".citation").count() == 2
    page.locator('.step[data-step="0.1:4"]').click()
    page.locator(".detail .passage mark", has_text="1850").first.wait_for()


def test_a_step_can_be_looked_into_while_the_team_works(page: Any) -> None:
    with serving(make_app(make_crew(delay_seconds=0.5))) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        page.locator('.step[data-step="0.1:2"]').click()
        page.locator(".ask:not(:has(.said)) .detail .tag.mark", has_text="holds the answer").first.wait_for()
        page.locator(".said", has_text="Lune").wait_for()
        assert page.locator('.step[aria-selected="true"]').get_attribute("data-step") == "0.1:2"


def test_what_was_asked_has_a_link_of_its_own(page: Any, url: str) -> None:
    page.goto(f"{url}#/ask")
    ask(page, NESTED)
    page.get_by_role("link", name="Link to this trace").click()
    page.locator(".trace h1", has_text=NESTED).wait_for()
    assert "/traces/live/" in page.url
    assert page.locator(".row").count() >= 1


def test_stop_ends_the_teams_work(page: Any) -> None:
    crew = make_crew(delay_seconds=0.4)
    with serving(make_app(crew)) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        page.locator(".step.busy").first.wait_for()
        page.get_by_role("button", name="Stop").click()
        page.locator(".notice.bad", has_text="Stopped").wait_for()
        page.wait_for_timeout(900)
        calls = num_calls(crew)
        page.wait_for_timeout(600)
        assert num_calls(crew) == calls < 11


def test_a_team_that_fails_says_why(page: Any) -> None:
    def broken(prompt: Prompt) -> str:
        raise RuntimeError("the model is gone")

    with serving(make_app(make_crew(broken))) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        page.locator(".notice.bad", has_text="the model is gone").wait_for()
        page.get_by_role("button", name="Ask", exact=True).wait_for()


def test_a_key_is_asked_for_and_then_used(page: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice 0123456789abcdef-secret\n")
    with serving(make_app(config=make_config(keys_file=str(keys)))) as address:
        page.goto(f"{address}/ui/")
        page.get_by_label("API key").fill("not the right key at all")
        page.keyboard.press("Enter")
        page.get_by_label("API key").wait_for()
        page.get_by_label("API key").fill("0123456789abcdef-secret")
        page.keyboard.press("Enter")
        page.goto(f"{address}/ui/#/ask")
        ask(page, NESTED)
        page.locator(".said", has_text="Lune").wait_for()
        assert "secret" not in page.url


def evil_crew() -> Crew:
    """Script in the documents, in the model's output and in the file names."""
    pages = (Passage("p0", EVIL, f"{EVIL} Fernhill {EVIL}", EVIL),)

    def script(prompt: Prompt) -> str:
        if prompt.role in ("AG", "AS"):
            return f"<answer>{EVIL}</answer>"
        return EVIL if prompt.role == "QR" else play(prompt)

    return Crew(build_team(TeamConfig()), Cast(ScriptedBackbone(script)), SmallRetriever(pages))


def test_script_in_a_question_a_document_or_an_output_is_text(page: Any, tmp_path: Path) -> None:
    append_traces(tmp_path / "t.jsonl", make_traces([Question(EVIL, EVIL, (EVIL,), EVIL)]))
    config = make_config(runs=[str(tmp_path / "t.jsonl")])
    with serving(make_app(evil_crew(), config)) as address:
        page.goto(f"{address}/ui/#/ask")
        ask(page, EVIL)
        page.locator(".said", has_text=EVIL).wait_for()
        for step in page.locator(".tree .step").all():
            step.click()
            page.locator(".detail").wait_for()
        assert page.locator("main img, main script").count() == 0
        page.goto(f"{address}/ui/#/traces/t")
        page.locator(".trace h1", has_text=EVIL).wait_for()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.querySelectorAll('script').length") == 1


def test_the_browser_itself_refuses_markup_from_strings(browser: Any, url: str) -> None:
    """The policy stands even if some later change of the page forgets itself."""
    page = browser.new_page()
    page.goto(url)
    refused = page.evaluate(
        "() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return false } catch { return true } }"
    )
    page.close()
    assert refused


def test_the_api_page_lists_the_endpoints(page: Any, url: str) -> None:
    page.goto(url.replace("/ui/", "/docs"))
    page.locator(".endpoint code", has_text="/v1/chat/completions").wait_for()
    assert page.locator(".endpoint").count() >= 10
