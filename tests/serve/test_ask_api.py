"""Our own endpoint, and the service around it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from serve_builders import NESTED, SIMPLE, make_app, make_config, make_crew, play, serving

from jade.backbone.scripted import ScriptedBackbone
from jade.config import RewardConfig
from jade.engine.record import trace_from_json
from jade.engine.solve import solve
from jade.serve.keys import Keyring
from jade.serve.room import answering_app, viewing_app
from jade.types import Prompt, Question, Usage


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with serving(make_app()) as url, httpx.Client(base_url=url) as client:
        yield client


def events_of(http: httpx.Client, **body: object) -> list[tuple[str, dict[str, object]]]:
    text = http.post("/v1/ask", json={"stream": True, **body}).text
    return [(name, json.loads(data)) for name, data in re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)]


def test_ask_gives_the_whole_trace(http: httpx.Client) -> None:
    reply = http.post("/v1/ask", json={"question": NESTED}).json()
    trace = trace_from_json(reply["trace"])
    assert reply["answer"] == trace.answer == "Lune"
    assert reply["trace_id"] == trace.id
    assert [node["id"] for node in reply["nodes"]] == ["0", "0.1", "0.2"]
    alone = asyncio.run(solve(Question(trace.question.id, NESTED), make_crew()))
    assert [(s.id, s.action) for s in alone.steps] == [(s.id, s.action) for s in trace.steps]
    assert replace(alone.usage, seconds=0) == replace(trace.usage, seconds=0) != Usage()


def test_an_answer_whose_trace_cannot_be_written_is_still_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a disk that is full; here a file stands where the folder should be."""
    (tmp_path / "out").write_text("in the way")
    config = make_config(traces=tmp_path / "out" / "traces.jsonl")
    with serving(make_app(config=config)) as url:
        reply = httpx.post(f"{url}/v1/ask", json={"question": NESTED})
    assert (reply.status_code, reply.json()["answer"]) == (200, "Lune")
    assert "was not kept" in caplog.text


def test_the_same_words_and_seed_are_the_same_question(http: httpx.Client) -> None:
    first, second = (http.post("/v1/ask", json={"question": SIMPLE, "seed": 7}).json()["trace"] for _ in range(2))
    assert first["question"] == second["question"]
    assert first["seed"] == second["seed"] == 7
    assert first["id"] != second["id"]


def plans_seen(
    body: dict[str, object], reward: RewardConfig | None = None, path: str = "/v1/ask"
) -> tuple[str, object]:
    """What the planner was told, and what was answered."""
    seen: list[str] = []

    def listening(prompt: Prompt) -> str:
        if prompt.role == "P":
            seen.append(prompt.user)
        return play(prompt)

    with serving(answering_app(make_crew(listening), make_config(), Keyring(), reward)) as url:
        reply = httpx.post(f"{url}{path}", json=body).json()
    return seen[0], reply


@pytest.mark.parametrize(
    ("effort", "dial", "told"),
    [
        ({"alpha": 0.25}, 0.0, "Prices: turn 0.25, search 0.00"),
        ("low", 0.4, "Prices: turn 0.40, search 0.40"),
        ("high", 0.4, "Prices: turn 0.00, search 0.00"),
        (0.75, 0.4, "Prices: turn 0.10, search 0.10"),
        (None, 0.4, "Prices: turn 0.20, search 0.20"),
        ("medium", 0.0, "Prices: turn 0.10, search 0.10"),
    ],
)
def test_an_effort_is_told_to_the_planner_as_prices(effort: object, dial: float, told: str) -> None:
    prompt, reply = plans_seen({"question": SIMPLE, "effort": effort}, RewardConfig(dial=dial))
    assert told in prompt
    assert reply["trace"]["effort"]  # type: ignore[index]


def test_without_a_dial_or_a_wish_no_prices_are_told() -> None:
    assert "Prices" not in plans_seen({"question": SIMPLE})[0]


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"reasoning_effort": "low"}, "turn 0.20"),
        ({"jade": {"effort": "high"}, "reasoning_effort": "low"}, "turn 0.00"),
        ({"jade": {"effort": {"alpha": 0.07}}}, "turn 0.07, search 0.00"),
    ],
)
def test_openai_clients_may_say_what_to_spend(wish: dict[str, object], told: str) -> None:
    chat = {"messages": [{"role": "user", "content": SIMPLE}], **wish}
    prompt, reply = plans_seen(chat, path="/v1/chat/completions")
    assert f"Prices: {told}" in prompt
    assert reply["jade"]["effort"]["alpha"] == float(told.split()[1].strip(","))  # type: ignore[index]


def test_an_unknown_name_of_openais_effort_has_no_effect() -> None:
    chat: dict[str, object] = {"messages": [{"role": "user", "content": SIMPLE}], "reasoning_effort": "minimal"}
    assert "Prices" not in plans_seen(chat, path="/v1/chat/completions")[0]


def test_an_effort_beyond_the_dial_is_refused_with_every_form_that_is_taken(http: httpx.Client) -> None:
    beyond: tuple[object, ...] = ("huge", 1.5, -1, {"alpha": -1}, [])
    for effort in beyond:
        refusal = http.post("/v1/ask", json={"question": SIMPLE, "effort": effort})
        assert refusal.status_code == 422, effort
        said = refusal.json()["error"]["message"]
        assert said.startswith("body.effort: expected low, medium, high, a number from 0 to 1, or prices")


def test_a_stream_opens_nodes_before_their_steps_and_ends_in_the_answer(http: httpx.Client) -> None:
    events = events_of(http, question=NESTED)
    names = [name for name, _ in events]
    assert names[0] == "node"
    assert names[-1] == "answer"
    opened: set[object] = set()
    for name, data in events:
        if name == "node":
            opened.add(data["id"])
        elif name in ("began", "step"):
            assert data["node"] in opened
    assert names.count("began") == names.count("step") == 13
    assert events[-1][1]["answer"] == "Lune"


def test_a_streamed_step_is_complete(http: httpx.Client) -> None:
    steps = [data for name, data in events_of(http, question=SIMPLE) if name == "step"]
    by_role = {str(step["role"]): step for step in steps}
    assert by_role["P"]["applied"] == {"kind": "Workflow", "modules": ["QR", "R", "DS", "AG"]}
    assert by_role["DS"]["prompt"]["user"].startswith("Document0 (Ada Marlow)")  # type: ignore[index]
    assert [passage["chosen"] for passage in by_role["DS"]["passages"]] == [True, False, False]  # type: ignore[attr-defined]
    assert by_role["R"]["generation"] is None


def test_a_failure_in_a_stream_is_its_last_event() -> None:
    def broken(prompt: Prompt) -> str:
        raise RuntimeError("the model is gone")

    with serving(make_app(make_crew(broken))) as url, httpx.Client(base_url=url) as http:
        name, data = events_of(http, question=SIMPLE)[-1]
    assert name == "error"
    assert data["code"] == "team_failed"
    assert "the model is gone" in str(data["message"])


def test_a_long_silence_is_broken_by_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jade.serve.stream.QUIET_SECONDS", 0.03)
    chat = {"messages": [{"role": "user", "content": SIMPLE}], "stream": True}
    with (
        serving(make_app(make_crew(ScriptedBackbone(play, delay_seconds=0.1)))) as url,
        httpx.Client(base_url=url) as http,
    ):
        for path, body in (("/v1/ask", {"question": SIMPLE, "stream": True}), ("/v1/chat/completions", chat)):
            text = http.post(path, json=body).text
            assert ": still working\n\n" in text
            assert "Fernhill" in text


def test_health_and_openapi_answer(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    paths = http.get("/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/models", "/v1/ask", "/healthz", "/metrics"} <= set(paths)


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_those_who_watch_a_service_may_ask_as_they_are_used_to(http: httpx.Client, path: str) -> None:
    assert http.get(path).json()["status"] == "ok"
    looked = http.head(path)
    assert (looked.status_code, looked.content) == (200, b"")


def test_an_address_that_is_not_served_leads_to_those_that_are(http: httpx.Client) -> None:
    """OpenAI's other endpoints are what somebody tries first."""
    refusal = http.post("/v1/responses", json={"model": "jade", "input": SIMPLE})
    assert refusal.status_code == 404
    assert "/docs" in refusal.json()["error"]["message"]


def test_metrics_count_requests_questions_and_tokens() -> None:
    with serving(make_app()) as url, httpx.Client(base_url=url) as http:
        http.post("/v1/ask", json={"question": NESTED})
        http.post("/v1/ask", content=b"not json")
        http.get("/nowhere/at/all")
        text = http.get("/metrics").text
    assert 'jade_requests_total{route="/v1/ask",status="200"} 1' in text
    assert 'jade_requests_total{route="other",status="404"} 1' in text
    assert 'jade_questions_total{outcome="answered"} 1' in text
    assert 'jade_spent_total{kind="retrievals"} 2' in text
    assert "jade_questions_active 0" in text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line), line


def test_histogram_buckets_are_cumulative() -> None:
    with serving(make_app()) as url, httpx.Client(base_url=url) as http:
        for _ in range(3):
            http.get("/healthz")
        text = http.get("/metrics").text
    counts = [int(n) for n in re.findall(r'seconds_bucket\{route="/healthz",le="[^"]+"\} (\d+)', text)]
    assert counts == sorted(counts)
    assert counts[-1] == 3


def test_a_server_without_a_team_says_so() -> None:
    with serving(viewing_app(make_crew().team, make_config(), Keyring())) as url:
        assert httpx.get(f"{url}/healthz").json()["team"] is False
        assert httpx.post(f"{url}/v1/ask", json={"question": SIMPLE}).status_code == 404
