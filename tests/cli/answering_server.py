"""A real OpenAI-compatible server on loopback whose model is a function: it is told who asks, and answers.

The documents, the questions and the answers below belong together: the model knows nothing by itself, it finds its
answer in the documents it is shown, or says `unknown`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jade.config import TeamConfig
from jade.team.team import build_team
from loopback import Handler, listening

ONE_HOP = "Who founded Ashford Mill?"
SERIAL = "Where was the founder of Ashford Mill born?"
PARALLEL = "Which river is longer, the Len or the Brede?"
UNSUPPORTED = "Who was the first astronaut of Ashford?"

SPLITS = {
    SERIAL: ("QDS", f"<q1>{ONE_HOP}</q1><q2>Where was #1 born?</q2>"),
    PARALLEL: ("QDP", "<q1>How long is the Len?</q1><q2>How long is the Brede?</q2>"),
}
FACTS = {
    ONE_HOP: "Ada Lenn",
    "Where was Ada Lenn born?": "Corby",
    "How long is the Len?": "40 kilometres",
    "How long is the Brede?": "25 kilometres",
}
SUMMARIES = {SERIAL: "Corby", PARALLEL: "River Len"}


def write_documents(folder: Path) -> Path:
    """One document of each plain kind; each holds a fact that the others do not."""
    folder.mkdir()
    (folder / "mill.txt").write_text("Ashford Mill was founded by Ada Lenn in 1802. It burned down in 1860.")
    (folder / "ada.md").write_text("# Ada Lenn\n\nAda Lenn was born in Corby. She built mills all her life.\n")
    (folder / "len.html").write_text("<title>River Len</title><script>x()</script><p>The Len is 40 kilometres long.")
    rows = [
        {"id": "b1", "title": "River Brede", "text": "The Brede is 25 kilometres long."},
        {"id": "c1", "contents": '"Corby"\nCorby is a market town.'},
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@dataclass(frozen=True)
class Call:
    """One request: the role that asked (by its prompt, or the prompt itself when it is none of ours)."""

    role: str
    user: str

    @property
    def question(self) -> str:
        return self.user.rpartition("Question: ")[2]


@dataclass(frozen=True)
class Failure:
    """An answer that is none."""

    status: int = 500
    message: str = "the model fell over"


Script = Callable[[Call], str | Failure]


def honest(call: Call) -> str:
    """Plans, splits, selects and answers by the tables above, from what it is shown and from nothing else."""
    return {
        "P": lambda: f"<workflow>{SPLITS.get(call.question, ('QR,R,DS,AG', ''))[0]}</workflow>",
        "QDS": lambda: SPLITS[call.question][1],
        "QDP": lambda: SPLITS[call.question][1],
        "QR": lambda: f"<query>{call.question}</query>",
        "DS": lambda: f"<id>{','.join(re.findall(r'^Document[0-9]+', call.user, re.MULTILINE)[:2])}</id>",
        "AG": lambda: f"<answer>{_from_documents(call)}</answer>",
        "AS": lambda: f"<answer>{SUMMARIES.get(call.question, 'unknown')}</answer>",
    }[call.role]()


def _from_documents(call: Call) -> str:
    fact = FACTS.get(call.question, "Ada Lenn")
    return fact if fact in call.user.rpartition("Question: ")[0] and call.question in FACTS else "Yuri Gagarin"


@dataclass
class Server:
    script: Script
    url: str = ""
    calls: list[Call] = field(default_factory=list)

    @property
    def roles(self) -> list[str]:
        return [call.role for call in self.calls]

    def reply(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """What a chat completion is answered with."""
        system, user = (message["content"] for message in body["messages"])
        call = Call(role_by_prompt().get(system, system), user)
        self.calls.append(call)
        said = self.script(call)
        if isinstance(said, Failure):
            return said.status, {"error": {"message": said.message}}
        message = {"role": "assistant", "content": said}
        usage = {"prompt_tokens": len(system + user) // 4, "completion_tokens": len(said) // 4}
        return 200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


@cache
def role_by_prompt() -> dict[str, str]:
    return {text: code for code, text in build_team(TeamConfig()).prompts.items()}


@contextmanager
def serving(script: Script = honest) -> Iterator[Server]:
    server = Server(script)

    class Answering(Handler):
        def do_GET(self) -> None:
            self.send(200, {"object": "list", "data": [{"id": "scripted"}]})

        def do_POST(self) -> None:
            self.send(*server.reply(json.loads(self.body())))

        def send(self, status: int, body: dict[str, Any]) -> None:
            self.answer(status, json.dumps(body).encode())

    with listening(Answering) as address:
        server.url = f"{address}/v1"
        yield server
