"""Small indexes and servers for the tests of retrieval."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from jade.retrieval.build import DensePlan, Report, build_index
from jade.types import Passage
from loopback import Handler, listening
from patience import until

TOWNS = (
    Passage("1", "Ashford", "Ashford is a town on the river Len. It has a school.", "towns.md:chars 0-52"),
    Passage(
        "2", "Brightwell", "Brightwell lies north of Ashford. Its mill burned down in 1902.", "towns.md:chars 53-116"
    ),
    Passage("3", "Len", "The Len is a river. It rises near Brightwell and ends in the sea.", "rivers.md:chars 0-65"),
    Passage("4", "Paraíba", "A state on the coast of Brazil.", "brazil.md:chars 0-31"),
)


def passages(texts: Sequence[str]) -> list[Passage]:
    return [Passage(str(number), "", text, f"t:line {number}") for number, text in enumerate(texts, start=1)]


def build(out: Path, found: Sequence[Passage] = TOWNS, dense: DensePlan | None = None) -> Report:
    """An index of these passages, as if they were the documents of one file."""
    return build_index(out, {"t": "1"}, lambda name: [[one] for one in found], settings={}, dense=dense, fresh=True)


def build_from(out: Path, files: Mapping[str, Sequence[Passage]], **options: Any) -> tuple[Report, list[str]]:
    """An index of several files, whose content is their fingerprint, and the names of those that were read."""
    read: list[str] = []

    def reader(name: str) -> list[list[Passage] | tuple[str, str]]:
        read.append(name)
        return [list(files[name])] if files[name] else [(name, "is empty")]

    prints = {name: str(hash(tuple(found))) for name, found in files.items()}
    return build_index(out, prints, reader, settings=options.pop("settings", {}), **options), read


class EchoRetriever:
    """Finds, for every query, k passages that repeat it."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], int]] = []
        self.closed = False

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked.append((list(queries), k))
        return [
            [Passage(f"{query}{n}", query.title(), query, "echo", 1.0 / n) for n in range(1, k + 1)]
            for query in queries
        ]

    async def close(self) -> None:
        self.closed = True


class StandInEncoder:
    """Letters as vectors: texts are near when they share letters. Stands where a model would."""

    dimension = 26

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def passages(self, texts: Sequence[str]) -> Any:
        self.encoded += texts
        return self.queries(texts)

    def queries(self, texts: Sequence[str]) -> Any:
        import numpy as np

        counts = np.array([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """A real server on a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert thread.is_alive(), "the server did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def misbehaving(*answers: tuple[int, bytes] | None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives these answers in turn, then the last again; None is no answer until the test is over."""
    received: list[bytes] = []
    over = threading.Event()

    class Misbehaving(Handler):
        def do_POST(self) -> None:
            received.append(self.body())
            answer = answers[min(len(received), len(answers)) - 1]
            if answer is None:
                over.wait()
            status, body = answer or (0, b"")
            self.close_connection = True
            if status:
                self.answer(status, body, {"Connection": "close"})  # said, or the client might use it again

    with listening(Misbehaving) as address:
        try:
            yield address, received
        finally:
            over.set()
