"""A real HTTP server on loopback that speaks the OpenAI protocol and fails as it is told to, answer by answer."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, listening


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
        self.over = threading.Event()
        """Set when the test is over: nobody waits any longer."""
        self.url = ""

    def next_act(self, path: str, headers: Any, body: Any) -> Act:
        with self.lock:
            self.arrived.set()
            self.times.append(time.monotonic())
            sent = {"key": headers.get("authorization"), "packings": headers.get("accept-encoding")}
            self.requests.append({"path": path, "body": body, **sent})
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

    class Misbehaving(Handler):
        def do_GET(self) -> None:
            self.act(None)

        def do_POST(self) -> None:
            self.act(json.loads(self.body()))

        def act(self, body: Any) -> None:
            act = server.next_act(self.path, self.headers, body)
            server.over.wait(act.wait_seconds)
            with server.lock:
                server.busy -= 1
            body = act.body if isinstance(act.body, (str, bytes)) else json.dumps(act.body)
            data = body.encode() if isinstance(body, str) else body
            promised = {"Content-Length": str(len(data) + 1000)} if act.cut_off else {}
            self.answer(act.status, data, {**act.headers, **promised})
            self.close_connection = act.cut_off

    with listening(Misbehaving) as address:
        server.url = f"{address}/v1"
        try:
            yield server
        finally:
            server.over.set()
