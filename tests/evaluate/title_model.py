"""A model behind HTTP for whole evaluations: OpenAI-compatible, and its every answer is a title it was shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from loopback import Handler, listening


class Model(Handler):
    """An OpenAI-compatible server whose every answer is the title of the first document."""

    def do_POST(self) -> None:
        asked = json.loads(self.body())["messages"][-1]["content"]
        title = asked.partition("(")[2].partition(")")[0]
        message = {"role": "assistant", "content": f"<answer>{title or 'nothing'}</answer>"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
        self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


@contextmanager
def serving_titles() -> Iterator[str]:
    """The address of such a model."""
    with listening(Model) as address:
        yield f"{address}/v1#titles"
