"""A model behind HTTP for whole evaluations: OpenAI-compatible, and its every answer is a title it was shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Model(BaseHTTPRequestHandler):
    """An OpenAI-compatible server whose every answer is the title of the first document."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        title = asked.partition("(")[2].partition(")")[0]
        message = {"role": "assistant", "content": f"<answer>{title or 'nothing'}</answer>"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


@contextmanager
def serving_titles() -> Iterator[str]:
    """The address of such a model."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1#titles"
        server.shutdown()
