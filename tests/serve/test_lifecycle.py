"""Clients that leave, models that die, and a server that is told to stop."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from serve_builders import NESTED, SIMPLE, Held, make_app, make_crew, play, serving

from jade.config import ServeConfig
from jade.errors import BackboneFailed
from jade.serve.listen import make_server
from jade.types import Prompt
from patience import PATIENCE_SECONDS, running, until


@contextmanager
def asking(url: str, *, stream: bool) -> Iterator[None]:
    """Asks, and hangs up at the end."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"question": NESTED, "stream": stream})
    head = f"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(f"{head}\r\n\r\n{body}".encode())
        yield


def metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics").text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_stops_the_work(stream: bool) -> None:
    team = Held(free=1)
    with serving(make_app(make_crew(team))) as url:
        with asking(url, stream=stream):
            until(lambda: team.num_asked == 2)
        until(lambda: "jade_questions_active 0" in metrics(url))
        assert 'jade_questions_total{outcome="cancelled"} 1' in metrics(url)
    assert team.num_asked == 2


def test_a_model_that_dies_is_502_and_the_server_lives() -> None:
    alive = [True]

    def mortal(prompt: Prompt) -> str:
        if not alive[0]:
            raise BackboneFailed("http://model:1 refused the connection: is it running?")
        return play(prompt)

    with serving(make_app(make_crew(mortal))) as url, httpx.Client(base_url=url) as http:
        before = http.post("/v1/ask", json={"question": SIMPLE})
        alive[0] = False
        dead = http.post("/v1/ask", json={"question": SIMPLE})
        chat = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": SIMPLE}]})
        health = http.get("/healthz")
        alive[0] = True
        after = http.post("/v1/ask", json={"question": SIMPLE})
    assert [r.status_code for r in (before, dead, chat, health, after)] == [200, 502, 502, 200, 200]
    assert "is it running?" in dead.json()["error"]["message"]
    assert dead.json()["error"]["trace_id"]


def test_a_closed_stdout_keeps_no_server_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert make_server(make_app(), ServeConfig()).should_exit is False


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    url: str

    def let_go(self) -> None:
        """The team, which waits after its plan, goes on."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)

    def refuses(self) -> bool:
        """Whether it is not to be reached any more."""
        try:
            httpx.get(f"{self.url}/healthz")
        except httpx.TransportError as error:
            # One that was let in while the door was being closed, and not heard, was not refused.
            return isinstance(error, httpx.ConnectError)
        return False


@contextmanager
def server_process() -> Iterator[Running]:
    command = [sys.executable, Path(__file__).with_name("scripted_server.py")]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Running(process, process.stdout.readline().strip())


def test_told_to_stop_it_finishes_a_stream_too() -> None:
    heard: list[str] = []

    def listen(url: str) -> None:
        with httpx.stream("POST", f"{url}/v1/ask", json={"question": SIMPLE, "stream": True}) as reply:
            heard.extend(reply.iter_lines())

    with server_process() as server, ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen, server.url)
        until(lambda: "event: began" in heard or listening.done())
        server.process.send_signal(signal.SIGTERM)
        until(server.refuses)
        server.let_go()
        listening.result()
        assert server.process.wait(PATIENCE_SECONDS) == 0
    assert "event: answer" in heard


def test_told_twice_it_leaves_at_once() -> None:
    with server_process() as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_ask, server.url)
        until(lambda: "jade_questions_active 1" in metrics(server.url))
        server.process.send_signal(signal.SIGTERM)
        until(server.refuses)
        assert server.process.poll() is None, "the first is a request"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_SECONDS) is not None
        with pytest.raises(httpx.HTTPError):
            waiting.result().raise_for_status()


def test_told_to_stop_it_finishes_what_is_running() -> None:
    with server_process() as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_ask, server.url)
        until(lambda: "jade_questions_active 1" in metrics(server.url))
        server.process.send_signal(signal.SIGTERM)
        until(server.refuses)
        server.let_go()
        assert waiting.result().json()["answer"] == "Fernhill"
        assert server.process.wait(PATIENCE_SECONDS) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read().strip() == "stopped"


def _ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/ask", json={"question": SIMPLE})
