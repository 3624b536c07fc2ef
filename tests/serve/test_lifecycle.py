"""Clients that leave, models that die, and a server that is told to stop."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from serve_builders import NESTED, SIMPLE, make_app, make_crew, num_calls, play, serving

from jade.errors import BackboneFailed
from jade.types import Prompt


def ask_and_leave(url: str, after_seconds: float, *, stream: bool) -> None:
    """Hang up in the middle of the work."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"question": NESTED, "stream": stream})
    head = f"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(f"{head}\r\n\r\n{body}".encode())
        time.sleep(after_seconds)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_stops_the_work_within_a_second(stream: bool) -> None:
    crew = make_crew(delay_seconds=0.25)
    with serving(make_app(crew)) as url:
        ask_and_leave(url, 0.4, stream=stream)
        time.sleep(0.5)
        after_a_moment = num_calls(crew)
        time.sleep(0.6)
        assert 0 < num_calls(crew) == after_a_moment < 11
        text = httpx.get(f"{url}/metrics").text
    assert 'jade_questions_total{outcome="cancelled"} 1' in text
    assert "jade_questions_active 0" in text


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


@contextmanager
def server_process(delay_seconds: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    script = Path(__file__).with_name("scripted_server.py")
    process = subprocess.Popen([sys.executable, script, str(delay_seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_told_to_stop_it_finishes_a_stream_too() -> None:
    heard: list[str] = []

    def listen(url: str) -> None:
        with httpx.stream("POST", f"{url}/v1/ask", json={"question": SIMPLE, "stream": True}, timeout=20) as reply:
            heard.extend(reply.iter_lines())

    with server_process(delay_seconds=0.3) as (process, url):
        listening = threading.Thread(target=listen, args=(url,))
        listening.start()
        while "event: began" not in heard:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        listening.join(timeout=20)
        assert process.wait(timeout=10) == 0
    assert "event: answer" in heard


def test_told_twice_it_leaves_at_once() -> None:
    with server_process(delay_seconds=30) as (process, url):
        asking = threading.Thread(target=lambda: _ask_in_vain(url))
        asking.start()
        while "jade_questions_active 1" not in httpx.get(f"{url}/metrics").text:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None, "the first is a request"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) is not None
        asking.join(timeout=20)


def _ask_in_vain(url: str) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{url}/v1/ask", json={"question": SIMPLE}, timeout=60).raise_for_status()


def test_told_to_stop_it_finishes_what_is_running() -> None:
    answers: list[httpx.Response] = []
    with server_process(delay_seconds=0.3) as (process, url):
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/v1/ask", json={"question": SIMPLE}, timeout=20))
        )
        asking.start()
        while "jade_questions_active 1" not in httpx.get(f"{url}/metrics").text:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/healthz")
        asking.join()
        assert process.wait(timeout=10) == 0
        assert process.stdout is not None
        assert process.stdout.read().strip() == "stopped"
    assert answers[0].json()["answer"] == "Fernhill"
