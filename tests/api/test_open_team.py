"""Asking from Python: from a script, a notebook's running loop, threads; with functions for model and search."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import jade
from jade.backbone.scripted import ScriptedBackbone
from jade.engine.events import Event, StepEnded
from patience import PATIENCE_SECONDS

FACTS = {"Who founded Ashford Mill?": "Ada Lenn", "Where was Ada Lenn born?": "Corby"}
TEXTS = ["Ashford Mill was founded by Ada Lenn.", "Ada Lenn was born in Corby."]


def speak(prompt: jade.Prompt) -> str:
    """A team that plans one round and knows what it is shown."""
    question = prompt.user.rpartition("Question: ")[2].splitlines()[0]
    said = {"P": "<workflow>R,AG</workflow>", "AG": f"<answer>{FACTS.get(question, 'unknown')}</answer>"}
    return said.get(prompt.role, "")


def find(query: str, k: int) -> list[str]:
    return sorted(TEXTS, key=lambda text: -len(set(query.split()) & set(text.split())))[:k]


def test_a_question_is_answered_with_what_supports_it() -> None:
    with jade.open_team(find, speak) as team:
        trace = team.ask("Who founded Ashford Mill?")
    assert (trace.answer, trace.supported, trace.error) == ("Ada Lenn", True, None)
    assert [step.role for step in trace.steps] == ["P", "R", "AG"]
    assert trace.citations[0].passage.text == TEXTS[0]


def test_one_text_is_not_taken_for_a_question_a_letter() -> None:
    with jade.open_team(find, speak) as team, pytest.raises(jade.JadeError, match=r"ask_all\(\['Who\?'\]\)"):
        team.ask_all("Who?")


def test_functions_may_be_asynchronous_or_give_passages() -> None:
    async def slow_speak(prompt: jade.Prompt) -> str:
        await asyncio.sleep(0)
        return speak(prompt)

    async def slow_find(query: str, k: int) -> list[jade.Passage]:
        await asyncio.sleep(0)
        return [jade.Passage("7", "Mill", TEXTS[0], "mine.txt")]

    with jade.open_team(slow_find, slow_speak) as team:
        trace = team.ask("Who founded Ashford Mill?")
    assert (trace.answer, trace.citations[0].passage.source) == ("Ada Lenn", "mine.txt")


def test_a_backbone_of_ones_own_is_taken_as_it_is() -> None:
    backbone = ScriptedBackbone(speak)
    with jade.open_team(find, backbone) as team:
        assert team.ask("Where was Ada Lenn born?").answer == "Corby"
    assert backbone.num_calls == 2


def test_a_running_loop_is_no_hindrance_and_goes_on_meanwhile() -> None:
    async def notebook() -> list[str]:
        with jade.open_team(find, speak) as team:
            asked = [asyncio.create_task(team.ask_async(question)) for question in FACTS]
            awaited = [(await task).answer for task in asked]
            return [*awaited, team.ask("Where was Ada Lenn born?").answer]

    assert asyncio.run(notebook()) == ["Ada Lenn", "Corby", "Corby"]


def test_many_questions_keep_their_order_and_are_heard_of_as_they_end() -> None:
    heard: dict[int, str] = {}
    questions = [*FACTS, "What else?"]
    with jade.open_team(find, speak) as team:
        traces = team.ask_all(
            questions, concurrency=2, on_trace=lambda place, trace: heard.update({place: trace.answer})
        )
    assert [trace.question.text for trace in traces] == questions
    assert [trace.answer for trace in traces] == ["Ada Lenn", "Corby", "unknown"]
    assert heard == dict(enumerate(trace.answer for trace in traces))


def test_questions_of_several_threads_are_worked_at_the_same_time() -> None:
    meeting = threading.Barrier(4)

    def speak_together(prompt: jade.Prompt) -> str:
        if prompt.role == "AG":
            meeting.wait(PATIENCE_SECONDS)  # nobody is answered before all four are asked
        return speak(prompt)

    with jade.open_team(find, speak_together) as team, ThreadPoolExecutor(4) as threads:
        answers = [trace.answer for trace in threads.map(team.ask, [*FACTS, *FACTS])]
    assert answers == [*FACTS.values(), *FACTS.values()]


def test_every_step_is_heard() -> None:
    heard: list[Event] = []
    with jade.open_team(find, speak) as team:
        trace = team.ask("Who founded Ashford Mill?", listen=heard.append)
    assert [event.step for event in heard if isinstance(event, StepEnded)] == list(trace.steps)


def test_a_model_that_fails_is_data() -> None:
    def broken(prompt: jade.Prompt) -> str:
        raise OSError("no route to host")

    with jade.open_team(find, broken) as team:
        trace = team.ask("Who founded Ashford Mill?")
    assert trace.answer == ""
    assert trace.error == "BackboneFailed: broken: OSError: no route to host"


def test_a_model_that_gives_no_text_is_named() -> None:
    with jade.open_team(find, lambda prompt: 7) as team:  # type: ignore[arg-type]
        assert "gave int, not text" in str(team.ask("Who?").error)


@pytest.mark.parametrize("found", [[3], None])
def test_a_search_that_fails_is_a_failed_question(found: object) -> None:
    with jade.open_team(lambda query, k: found, speak) as team:  # type: ignore[arg-type]
        error = team.ask("Who founded Ashford Mill?").error
    assert error is not None
    assert error.startswith("every search failed, the last one with RetrievalFailed: <lambda>: TypeError")


def test_efforts_are_prices_that_the_planner_reads() -> None:
    read: list[str] = []

    def reading(prompt: jade.Prompt) -> str:
        read.append(prompt.user)
        return speak(prompt)

    with jade.open_team(find, reading, settings={"reward.dial": 0.4}) as team:
        for effort in ("low", 0.5, "high"):
            team.ask("Who founded Ashford Mill?", effort=effort)
        with pytest.raises(jade.JadeError, match=r"reward\.effort: choose low, medium, high"):
            team.ask("Who founded Ashford Mill?", effort="lavish")
    prices = [line for text in read for line in text.splitlines() if line.startswith("Prices")]
    assert prices == [f"Prices: turn {price}, search {price}" for price in ("0.40", "0.20", "0.00")]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"budget.ronds": 4}, r"budget\.ronds: no such setting \(did you mean budget\.rounds\?\)"),
        ({"budget.rounds": "many"}, r"budget\.rounds: .*integer.*'many'"),
        ({"seed": 2, "seed.x": 1}, r"'seed\.x': seed is not a section"),
    ],
)
def test_a_setting_that_cannot_be_is_named(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(jade.JadeError, match=complaint):
        jade.open_team(find, speak, settings=change)


def test_settings_go_before_names_and_names_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text("[retrieval]\nk = 2\n[budget]\nrounds = 7\ncalls = 9\n")
    config = jade.load_config(tmp_path / "team.toml")
    for given in (config, tmp_path / "team.toml", str(tmp_path / "team.toml")):
        with jade.open_team(find, speak, config=given, settings={"retrieval.k": 1}) as team:
            assert (team.config.retrieval.k, team.config.budget.rounds, team.config.budget.calls) == (1, 7, 9)
            assert len(team.search("Ada Lenn")) == 1


@pytest.mark.parametrize("call", [lambda team: team.ask("Who?"), lambda team: team.search("Who?")])
def test_a_closed_team_says_so(call: Callable[[jade.OpenTeam], object]) -> None:
    team = jade.open_team(find, speak)
    team.close()
    team.close()
    with pytest.raises(jade.JadeError, match=r"this team is closed; open it again with jade\.open_team"):
        call(team)


def test_a_team_that_asks_itself_is_told_instead_of_hanging() -> None:
    caught: list[str] = []

    def ask_again(event: Event) -> None:
        if not caught:
            caught.append("…")
            with pytest.raises(jade.JadeError, match="from another thread") as raised:
                team.ask("Where was Ada Lenn born?")
            caught.append(str(raised.value))

    with jade.open_team(find, speak) as team:
        assert team.ask("Who founded Ashford Mill?", listen=ask_again).answer == "Ada Lenn"
    assert len(caught) == 2


def test_whoever_stops_waiting_stops_the_work() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def stuck(prompt: jade.Prompt) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def give_up() -> None:
        with jade.open_team(find, stuck) as team:
            waiting = asyncio.create_task(team.ask_async("Who?"))
            assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await asyncio.to_thread(ended.wait, PATIENCE_SECONDS)

    asyncio.run(give_up())


def test_closing_ends_what_is_under_way() -> None:
    begun = threading.Event()

    async def stuck(prompt: jade.Prompt) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    team = jade.open_team(find, stuck)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(team.ask, "Who?")
        assert begun.wait(PATIENCE_SECONDS)
        team.close()
        assert asked.exception(PATIENCE_SECONDS) is not None


def test_a_script_that_forgets_to_close_ends_all_the_same() -> None:
    code = """
import jade
team = jade.open_team(lambda query, k: ["x"], lambda prompt: "<answer>x</answer>")
print(team.ask("Who?").answer)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (done.stdout, done.stderr, done.returncode) == ("x\n", "", 0)
