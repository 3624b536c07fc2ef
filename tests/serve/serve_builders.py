"""A small country, a scripted team that knows how to ask about it, and a server around them."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from starlette.types import ASGIApp

from jade.backbone.scripted import ScriptedBackbone
from jade.config import ServeConfig, TeamConfig
from jade.serve.keys import read_keys
from jade.serve.listen import make_server, open_socket, url_of
from jade.serve.room import answering_app
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Generation, Passage, Prompt, Sampling

PAGES = (
    Passage("p0", "Ada Marlow", "Ada Marlow is a botanist. She was born in Fernhill in 1902.", "country.txt:1"),
    Passage("p1", "Fernhill", "Fernhill is a town on the river Lune. Its school opened in 1850.", "country.txt:2"),
    Passage("p2", "Brackwater", "Brackwater is a harbour town. Its school opened in 1791.", "country.txt:3"),
    Passage("p3", "River Lune", "The Lune rises in the Grey Hills and reaches the sea at Brackwater.", "country.txt:4"),
)
NESTED = "On which river is the town where Ada Marlow was born?"
PARALLEL = "Which school is older, that of Fernhill or that of Brackwater?"
SIMPLE = "Where was Ada Marlow born?"


class SmallRetriever:
    """Ranks the pages by the words they share with the query."""

    def __init__(self, pages: Sequence[Passage] = PAGES) -> None:
        self._pages = pages

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [sorted(self._pages, key=lambda page: -_shared(query, page))[:k] for query in queries]

    async def close(self) -> None:
        return None


def _shared(query: str, page: Passage) -> int:
    words = set(re.findall(r"\w+", query.lower()))
    return len(words & set(re.findall(r"\w+", f"{page.title} {page.text}".lower())))


_PLANS = {NESTED: "QDS", PARALLEL: "QDP"}
_SPLITS = {
    "QDS": "<q1>Where was Ada Marlow born?</q1><q2>On which river is #1?</q2>",
    "QDP": "<q1>When did the school of Fernhill open?</q1><q2>When did the school of Brackwater open?</q2>",
}
_ANSWERS = {
    SIMPLE: "Fernhill",
    "On which river is Fernhill?": "Lune",
    "When did the school of Fernhill open?": "1850",
    "When did the school of Brackwater open?": "1791",
    NESTED: "Lune",
    PARALLEL: "Brackwater",
}


def play(prompt: Prompt) -> str:
    """What each role of the scripted team says."""
    question = prompt.user.rsplit("Question: ", 1)[1]
    match prompt.role:
        case "P":
            return f"<workflow>{_PLANS.get(question, 'QR,R,DS,AG')}</workflow>"
        case "QDS" | "QDP":
            return _SPLITS[prompt.role]
        case "QR":
            return f"<query>{question.rstrip('?')}</query>"
        case "DS":
            return "<id>Document0</id>"
        case _:
            return f"<answer>{_ANSWERS.get(question, 'unknown')}</answer>"


class Held(ScriptedBackbone):
    """Answers the first `free` calls at once, and the others when it is let go: what happens meanwhile has its time."""

    def __init__(self, free: int = 0) -> None:
        super().__init__(play)
        self._free = free
        self.num_asked = 0
        self.let_go = threading.Event()

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self.num_asked += 1
        is_held = self.num_asked > self._free
        while is_held and not self.let_go.is_set():  # noqa: ASYNC110 (let go from another thread)
            await asyncio.sleep(0.01)
        return await super().generate(prompt, sampling)


def make_crew(script: Callable[[Prompt], str] | ScriptedBackbone = play, *, k: int = 3) -> Crew:
    backbone = script if isinstance(script, ScriptedBackbone) else ScriptedBackbone(script)
    return Crew(build_team(TeamConfig()), Cast(backbone), SmallRetriever(), k=k)


def num_calls(crew: Crew) -> int:
    assert isinstance(crew.cast.shared, ScriptedBackbone)
    return crew.cast.shared.num_calls


def make_config(**settings: object) -> ServeConfig:
    return ServeConfig.model_validate({"port": 0, **settings})


def make_app(crew: Crew | None = None, config: ServeConfig | None = None) -> ASGIApp:
    config = config or make_config()
    return answering_app(crew or make_crew(), config, read_keys(config))


@contextmanager
def serving(app: ASGIApp, config: ServeConfig | None = None) -> Iterator[str]:
    """A real server on a free port of the loopback, in a thread of its own; gives its address."""
    config = config or make_config()
    server, sock = make_server(app, config), open_socket(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
    url = url_of(sock)
    thread.start()
    try:
        yield url
    finally:
        server.stop()
        thread.join(timeout=300)
        assert not thread.is_alive(), "the server did not stop"
