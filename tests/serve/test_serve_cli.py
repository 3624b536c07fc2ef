"""The verbs `serve`, `view` and `mcp` as processes, with a real index and a model behind a URL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import openai
import pytest
from fastapi import FastAPI
from serve_builders import NESTED, PAGES, SIMPLE, SmallRetriever, play, serving
from starlette.requests import Request
from trace_builders import write_training

from jade.cli.main import main
from jade.config import ServeConfig
from jade.retrieval.server import make_app as retrieval_app
from jade.serve.listen import open_socket
from jade.types import Prompt
from patience import PATIENCE_SECONDS, running, until

KEY = "0123456789abcdef-key"
NO_MEANS = ("--index", "nowhere", "--model", "http://127.0.0.1:9/v1#none")
"""Neither an index nor a model: what is told in spite of it was found before either was opened."""


def model_app() -> FastAPI:
    """An OpenAI-compatible server whose model is the scripted team; the role is read off its instruction."""
    app = FastAPI()
    roles = {"plan how": "P", "answered in order": "QDS", "independently": "QDP", "Rewrite": "QR", "Select": "DS"}

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, object]:
        system, user = (message["content"] for message in (await request.json())["messages"])
        role = next((code for words, code in roles.items() if words in system), "AG")
        message = {"role": "assistant", "content": play(Prompt(role, system, user))}
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}

    return app


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from jade.api.documents import index_documents

    folder = tmp_path_factory.mktemp("country")
    for page in PAGES:
        (folder / f"{page.id}.md").write_text(f"# {page.title}\n\n{page.text}\n")
    index_documents([folder], folder / "index")
    return folder / "index"


@contextmanager
def jade(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    call = [sys.executable, "-c", "from jade.cli.main import main; main()", *arguments]
    with running(call, stderr=subprocess.PIPE, env=environment) as process:
        yield process


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found, line + process.stderr.read()
    return found[0]


def test_serve_answers_over_a_real_index_and_survives_its_model(index: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    with ExitStack() as model:
        address = model.enter_context(serving(model_app()))
        options = ("--index", str(index), "--model", f"{address}/v1#scripted", "--port", "0", "--traces", str(traces))
        with jade("serve", *options, "--set", "backbone.retries=0", JADE_API_KEYS=KEY) as process:
            url = address_of(process)
            client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
            ask = partial(client.chat.completions.create, model="jade", messages=[{"role": "user", "content": NESTED}])
            assert ask().choices[0].message.content == "Lune"
            assert json.loads(traces.read_text())["answer"] == "Lune"
            model.close()
            with pytest.raises(openai.InternalServerError, match="the team could not work") as raised:
                ask()
            assert raised.value.status_code == 502
            with pytest.raises(openai.AuthenticationError):
                openai.OpenAI(base_url=f"{url}/v1", api_key="wrong").models.list()
            assert httpx.get(f"{url}/healthz").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
            assert process.stderr is not None
            assert KEY not in process.stderr.read(), "a key is never logged"


def test_an_effort_given_at_the_start_holds_for_every_question(index: Path) -> None:
    with serving(model_app()) as address:
        options = ("--index", str(index), "--model", f"{address}/v1#scripted", "--port", "0", "--effort", "low")
        with jade("serve", *options, JADE_API_KEYS="") as process:
            url = address_of(process)
            usual = httpx.post(f"{url}/v1/ask", json={"question": SIMPLE}).json()
            wished = httpx.post(f"{url}/v1/ask", json={"question": SIMPLE, "effort": "high"}).json()
    assert usual["trace"]["effort"] == {"alpha": 0.2, "beta": 0.2}
    assert wished["trace"]["effort"] == {"alpha": 0.0, "beta": 0.0}


async def test_mcp_serves_an_agent_over_stdio(index: Path, tmp_path: Path) -> None:
    """The verb itself, a real index, a model behind a URL, and the official client."""
    mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    traces = tmp_path / "traces.jsonl"
    with serving(model_app()) as address:
        call = ["-c", "from jade.cli.main import main; main()", "mcp", "--index", str(index), "--traces", str(traces)]
        server = StdioServerParameters(command=sys.executable, args=[*call, "--model", f"{address}/v1#scripted"])
        async with mcp.Client(stdio_client(server)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            answered = await client.call_tool("ask", {"question": NESTED, "effort": "high"})
            found = await client.call_tool("search", {"query": "Brackwater harbour", "limit": 1})
    assert sorted(tools) == ["ask", "search"]
    assert answered.structured_content["answer"] == "Lune"
    assert found.structured_content["passages"][0]["title"] == "Brackwater"
    assert json.loads(traces.read_text())["effort"] == {"alpha": 0.0, "beta": 0.0}


def test_a_retrieval_server_that_dies_is_502_though_the_model_answers(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    with serving(model_app()) as model, ExitStack() as retrieval:
        index = retrieval.enter_context(serving(retrieval_app(SmallRetriever())))
        options = ("--index", index, "--model", f"{model}/v1#scripted", "--port", "0", "--traces", str(traces))
        with jade("serve", *options, "--set", "retrieval.retries=0", JADE_API_KEYS="") as process:
            url = address_of(process)
            before = httpx.post(f"{url}/v1/ask", json={"question": SIMPLE})
            retrieval.close()
            asked = httpx.post(f"{url}/v1/ask", json={"question": SIMPLE})
            chat = httpx.post(f"{url}/v1/chat/completions", json={"messages": [{"role": "user", "content": SIMPLE}]})
    assert [reply.status_code for reply in (before, asked, chat)] == [200, 502, 502]
    assert f"every search failed, the last one with RetrievalFailed: retrieval server {index}" in asked.text
    assert asked.json()["error"]["trace_id"] in traces.read_text()


def test_a_server_whose_model_is_not_there_says_so(index: Path) -> None:
    options = ("--index", str(index), "--model", "http://127.0.0.1:9/v1#none", "--port", "0")
    with jade("serve", *options, "--set", "backbone.retries=0", JADE_API_KEYS="") as process:
        url = address_of(process)
        reply = httpx.post(f"{url}/v1/ask", json={"question": SIMPLE})
        assert reply.status_code == 502
        assert "127.0.0.1:9" in reply.json()["error"]["message"]
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"


def test_view_shows_a_training_run_without_a_model(tmp_path: Path) -> None:
    write_training(tmp_path / "run")
    with jade("view", str(tmp_path / "run"), "--no-browser", JADE_API_KEYS="") as process:
        url = address_of(process)
        assert "<title>JADE</title>" in httpx.get(f"{url}/ui/").text
        assert httpx.get(f"{url}/v1/runs").json()["runs"][0]["kind"] == "training"
        assert httpx.get(f"{url}/", follow_redirects=True).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


def slow_browser(folder: Path, name: str) -> Path:
    """A browser that notes that it was asked, and is waited for."""
    script = folder / name
    script.write_text(f'#!/bin/sh\necho "$1" > {folder}/asked\nwhile kill -0 $PPID; do sleep 0.1; done\n')
    script.chmod(0o755)
    return script


def test_view_starts_no_browser_that_would_take_the_terminal(tmp_path: Path) -> None:
    write_training(tmp_path / "run")
    slow_browser(tmp_path, "w3m")
    where = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "xterm", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    with jade("view", str(tmp_path / "run"), JADE_API_KEYS="", BROWSER="", **where) as process:
        assert httpx.get(f"{address_of(process)}/healthz").json()["status"] == "ok"
    assert not (tmp_path / "asked").exists()


def test_view_serves_while_the_browser_it_started_is_open(tmp_path: Path) -> None:
    write_training(tmp_path / "run")
    browser = slow_browser(tmp_path, "browser")
    with jade("view", str(tmp_path / "run"), JADE_API_KEYS="", BROWSER=str(browser)) as process:
        url = address_of(process)
        until(lambda: (tmp_path / "asked").exists())
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["view", "nowhere.jsonl"], "no traces"),
        (["serve", "--port", "0"], "retrieval.index is not set"),
        (["serve", "--port", "70000"], "serve.port"),
        (["serve", "--host", "0.0.0.0"], "no API key is set"),
        (["serve", "--keys", "nowhere.txt"], "cannot be read"),
        (["serve", *NO_MEANS, "--view", "nowhere.jsonl"], "nowhere.jsonl: no traces"),
        (["serve", *NO_MEANS, "--port", "0", "--traces", __file__], "holds something else"),
        (["mcp", *NO_MEANS, "--traces", __file__], "holds something else"),
    ],
)
def test_what_is_the_users_to_mend_is_one_line(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["jade", *arguments])
    monkeypatch.delenv("JADE_API_KEYS", raising=False)
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err.strip()
    assert left.value.code == 2
    assert complaint in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["serve", *NO_MEANS], ["retrieve-server", "--index", "nowhere"]])
def test_an_address_that_is_taken_is_told_before_anything_is_loaded(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_socket(ServeConfig(port=0)) as taken:
        monkeypatch.setattr(sys, "argv", ["jade", *arguments, "--port", str(taken.getsockname()[1])])
        with pytest.raises(SystemExit):
            main()
    assert "Address already in use; choose another --port" in capsys.readouterr().err
