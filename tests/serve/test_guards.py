"""Who is kept out, and with which status."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serve_builders import SIMPLE, Held, make_app, make_config, make_crew, num_calls, serving

from jade.errors import ConfigError
from jade.serve.app import PAGE_FOLDER
from jade.serve.guard import Bucket
from jade.serve.keys import Keyring, check_exposure, read_keys
from patience import PATIENCE_SECONDS, until

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef00"


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"# who may ask\nalice {ALICE}\n\n{BOB}\n")
    return path


@pytest.fixture
def guarded(keys_file: Path) -> Iterator[httpx.Client]:
    config = make_config(keys_file=keys_file, requests_per_minute=2)
    with serving(make_app(config=config)) as url, httpx.Client(base_url=url) as client:
        yield client


def ask(http: httpx.Client, key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return http.post("/v1/ask", json={"question": SIMPLE}, headers=headers)


def test_a_known_key_opens_and_anything_else_does_not(guarded: httpx.Client) -> None:
    assert ask(guarded).status_code == 401
    assert ask(guarded, "wrong").status_code == 401
    assert ask(guarded, ALICE + "x").status_code == 401
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/v1/models", headers={"Authorization": ALICE}).status_code == 401
    assert ask(guarded, ALICE).status_code == 200
    assert ask(guarded, BOB).status_code == 200


def test_a_refusal_says_how_to_identify_and_never_repeats_the_key(guarded: httpx.Client) -> None:
    refused = ask(guarded, "a-key-that-is-not-known")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert "a-key-that-is-not-known" not in refused.text
    assert "error" in refused.json()


def test_pages_without_data_need_no_key(guarded: httpx.Client) -> None:
    for path in ("/healthz", "/health", "/openapi.json", "/docs", "/ui/"):
        assert guarded.get(path).status_code == 200, path


def test_each_key_has_its_own_rate(guarded: httpx.Client) -> None:
    statuses = [ask(guarded, ALICE).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert int(ask(guarded, ALICE).headers["Retry-After"]) >= 1
    assert ask(guarded, BOB).status_code == 200
    assert guarded.get("/v1/models", headers={"Authorization": f"Bearer {ALICE}"}).status_code == 200


def test_an_allowance_refills_with_time() -> None:
    bucket = Bucket(per_minute=1200)
    assert sum(bucket.take() == 0 for _ in range(1300)) < 1300
    time.sleep(0.11)
    assert bucket.take() == 0


def test_keys_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch, keys_file: Path) -> None:
    monkeypatch.setenv("JADE_API_KEYS", "carol-0123456789abcdef , dave-0123456789abcdef0")
    ring = read_keys(make_config(keys_file=keys_file))
    assert ring.holder(ALICE) == "alice"
    assert ring.holder("carol-0123456789abcdef") == "key3"
    assert ring.holder("dave") is None


def test_keys_are_never_printed(keys_file: Path) -> None:
    ring = read_keys(make_config(keys_file=keys_file))
    assert ALICE not in repr(ring)
    assert "alice" not in repr(ring)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("short", "at least 16"), ("# nobody\n", "holds no key"), (f"a {ALICE}\na {BOB}", "taken")],
)
def test_unusable_key_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        read_keys(make_config(keys_file=path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(make_config(keys_file=tmp_path / "absent"))


def test_a_reachable_host_without_keys_refuses_to_start() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(ConfigError, match="no API key"):
            check_exposure(host, Keyring())
        check_exposure(host, Keyring({"alice": b"digest"}))
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        check_exposure(host, Keyring())


def test_a_foreign_host_name_on_the_loopback_is_turned_away() -> None:
    """A web page can make its own name point at 127.0.0.1 and would then read as the same origin."""
    with serving(make_app(config=make_config(allowed_hosts=("jade.test",)))) as url:
        statuses = {
            name: httpx.get(f"{url}/healthz", headers={"Host": name}).status_code
            for name in ("evil.example", "127.0.0.1.evil.example:80", "localhost:8000", "[::1]:9", "jade.test:1", "")
        }
    assert statuses == {
        "evil.example": 421,
        "127.0.0.1.evil.example:80": 421,
        "localhost:8000": 200,
        "[::1]:9": 200,
        "jade.test:1": 200,
        "": 421,
    }


def test_the_page_has_no_inline_script_or_style_and_loads_nothing_from_elsewhere() -> None:
    """What the policy forbids must not be there in the first place, or the page would break."""
    files = [path for path in PAGE_FOLDER.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
    assert len(files) > 20
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert not re.search(
            r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|\beval\(|new Function|document\.write", text
        ), path
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", text), path


def test_every_module_of_the_page_is_fetched_at_once() -> None:
    """Modules that are found one behind the other cost a round each."""
    page = (PAGE_FOLDER / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'/ui/js/([\w.]+)"', page))
    wanted, found = ["main.js"], set[str]()
    while wanted:
        name = wanted.pop()
        found.add(name)
        text = (PAGE_FOLDER / "js" / name).read_text(encoding="utf-8")
        wanted += set(re.findall(r'from "\./([\w.]+)"', text)) - found
    assert named == found


def test_every_response_carries_the_security_headers() -> None:
    with serving(make_app()) as url, httpx.Client(base_url=url) as http:
        for path in ("/healthz", "/ui/", "/nowhere", "/v1/models"):
            headers = http.get(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert headers["X-Frame-Options"] == "DENY", path
            assert headers["Referrer-Policy"] == "no-referrer", path
            policy = headers["Content-Security-Policy"]
            assert "script-src 'self';" in policy, path
            assert "unsafe" not in policy, path
        assert http.get("/v1/models").headers["Cache-Control"] == "no-store"
        assert "server" not in http.get("/healthz").headers


def test_cors_is_closed_unless_an_origin_is_named() -> None:
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    with serving(make_app()) as url:
        assert "access-control-allow-origin" not in httpx.get(f"{url}/healthz", headers=asks).headers
        assert httpx.options(f"{url}/v1/ask", headers=asks).status_code == 405
    with serving(make_app(config=make_config(cors_origins=("https://app.example",)))) as url:
        allowed = httpx.options(f"{url}/v1/ask", headers=asks)
        other = httpx.options(f"{url}/v1/ask", headers={**asks, "Origin": "https://evil.example"})
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in other.headers


def test_an_allowed_origin_can_read_a_refusal(keys_file: Path) -> None:
    config = make_config(cors_origins=("https://app.example",), keys_file=keys_file)
    with serving(make_app(config=config)) as url:
        refused = httpx.post(f"{url}/v1/ask", json={"question": SIMPLE}, headers={"Origin": "https://app.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"


def test_too_large_a_body_or_question_is_413() -> None:
    config = make_config(max_body_bytes=2000, max_question_chars=50)
    crew = make_crew()
    with serving(make_app(crew, config)) as url, httpx.Client(base_url=url) as http:
        stated = http.post("/v1/ask", json={"question": "x" * 3000})
        unstated = http.post("/v1/ask", content=(b"x" * 500 for _ in range(9)))
        question = http.post("/v1/ask", json={"question": "x" * 51})
    assert [r.status_code for r in (stated, unstated, question)] == [413, 413, 413]
    assert [r.json()["error"]["code"] for r in (stated, question)] == ["body_too_large", "question_too_long"]
    assert num_calls(crew) == 0


def test_a_body_that_never_comes_is_408() -> None:
    with serving(make_app(config=make_config(read_seconds=0.2))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as sock:
            sock.sendall(f"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n".encode())
            assert b" 408 " in sock.recv(4096).split(b"\r\n")[0]


def test_a_full_queue_is_503() -> None:
    team = Held()
    app = make_app(make_crew(team), make_config(concurrency=1, queue=1))
    with serving(app) as url, httpx.Client(base_url=url) as http, ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(ask, http) for _ in range(2)]
        until(lambda: "jade_questions_waiting 1" in http.get("/metrics").text)
        assert [ask(http).status_code for _ in range(2)] == [503, 503]
        team.let_go.set()
        assert [one.result().status_code for one in taken] == [200, 200]
        text = http.get("/metrics").text
    assert 'jade_questions_total{outcome="refused"} 2' in text
    assert "jade_questions_active 0" in text


def test_an_answer_that_does_not_come_is_504_also_for_those_who_wait_their_turn() -> None:
    app = make_app(make_crew(Held()), make_config(concurrency=1, queue=1, answer_seconds=0.2))
    with serving(app) as url, httpx.Client(base_url=url) as http, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, http) for _ in range(2)]
        assert [one.result().status_code for one in asked] == [504, 504]
        text = http.get("/metrics").text
    assert 'jade_questions_total{outcome="timeout"} 2' in text
    assert "jade_questions_active 0" in text
