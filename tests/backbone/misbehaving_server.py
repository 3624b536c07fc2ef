"""A real HTTP server on loopback that speaks the OpenAI protocol and fails as it is told to, answer by answer."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Act:
    """How to answer one request."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    wait_seconds: float = 0.0
    cut_off: bool = False


def completion(text: str = "Paris", finish: str = "stop", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3},
    }


class Server:
    """Answers with `script`, then with plain completions; keeps every request it got."""

    def __init__(self, script: list[Act]) -> None:
        self.script = deque(script)
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        self.arrived = threading.Event()
        self.url = ""

    def next_act(self, path: str, headers: Any, body: Any) -> Act:
        with self.lock:
            self.arrived.set()
            self.times.append(time.monotonic())
            self.requests.append({"path": path, "body": body, "key": headers.get("authorization")})
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
            if path.endswith("/models"):
                return Act(body={"object": "list", "data": [{"id": "served-model"}]})
            return self.script.popleft() if self.script else Act(body=completion())

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request["body"] for request in self.requests if request["body"]]


@contextmanager
def serving(*script: Act) -> Iterator[Server]:
    server = Server(list(script))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.act(None)

        def do_POST(self) -> None:
            self.act(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def act(self, body: Any) -> None:
            act = server.next_act(self.path, self.headers, body)
            time.sleep(act.wait_seconds)
            with server.lock:
                server.busy -= 1
            data = act.body.encode() if isinstance(act.body, str) else json.dumps(act.body).encode()
            self.send_response(act.status)
            self.send_header("content-length", str(len(data) + 1000 * act.cut_off))
            for name, value in act.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = act.cut_off

        def log_message(self, format: str, *args: Any) -> None:
            return None

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
