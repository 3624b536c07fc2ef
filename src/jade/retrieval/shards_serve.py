"""Shards in processes of their own, on this machine, behind one front that merges.

A process serves a run of neighbouring shards; it ends when the one that started it does, however that one ends.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jade.config import RetrievalConfig, ServeConfig
from jade.errors import ConfigError, IndexUnusable, JadeError
from jade.retrieval.open import open_shards
from jade.retrieval.remote import RemoteRetriever
from jade.retrieval.server import make_app
from jade.retrieval.shards import ShardedRetriever, is_sharded, read_shards

START_SECONDS = 1800.0
"""Time that a process is given to open its shards."""
BACKLOG = 2048
"""Calls that may wait to be taken, as many as uvicorn lets wait."""


def open_remote_shards(urls: Sequence[str], cfg: RetrievalConfig) -> ShardedRetriever:
    """Servers that each hold a part of one corpus, given in its order."""
    return ShardedRetriever(
        [RemoteRetriever(url, timeout_seconds=cfg.timeout_seconds, retries=cfg.retries) for url in urls]
    )


@contextmanager
def shard_servers(cfg: RetrievalConfig, num_processes: int) -> Iterator[list[str]]:
    """The URLs of `num_processes` processes that share the shards of `cfg.index` between them."""
    with ExitStack() as stack:
        groups = share_out(cfg.index, num_processes)
        starting = [stack.enter_context(_process(cfg, group)) for group in groups]
        yield [_url(pipe, cfg.index) for pipe in starting]


def share_out(index: str, num_processes: int) -> list[range]:
    """Neighbouring shards for each process, about equally many."""
    if not is_sharded(Path(index)):
        raise ConfigError(
            f"--shards: index {index} is in one piece; cut one with `jade index PATH --out DIR --shard-size N`"
        )
    total = len(read_shards(Path(index)).starts)
    if not 1 <= num_processes <= total:
        raise ConfigError(f"--shards {num_processes}: index {index} has {total} shards; give 1 to {total}")
    bounds = [total * number // num_processes for number in range(num_processes + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


@contextmanager
def _process(cfg: RetrievalConfig, numbers: range) -> Iterator[Connection]:
    spawn = multiprocessing.get_context("spawn")  # a fork would share locks that threads of this process hold
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve_range, args=(cfg, numbers, theirs), daemon=True)
    process.start()
    theirs.close()  # else this process would hold both ends, and never hear that the other has ended
    try:
        yield ours
    finally:
        ours.close()  # by which the process knows that it is over
        process.join(5)
        process.kill()
        process.join()


def _url(pipe: Connection, index: str) -> str:
    try:
        answer = pipe.recv() if pipe.poll(START_SECONDS) else "no answer"
    except EOFError:
        answer = "its process ended"
    if isinstance(answer, int):
        return f"http://127.0.0.1:{answer}"
    raise IndexUnusable(f"the shards of {index} could not be opened: {answer}")


def serve_range(cfg: RetrievalConfig, numbers: range, pipe: Connection) -> None:
    """What a process does: open, say where, serve until the other end of the pipe is gone."""
    import uvicorn

    try:
        about = {"index": cfg.index, "shards": list(numbers)}
        app = make_app(open_shards(cfg, numbers), k=cfg.k, about=about, serve=ServeConfig())
    except JadeError as error:
        pipe.send(str(error))
        return
    # Named as TCP: only then does asyncio send small answers at once, not 40 ms later.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(BACKLOG)  # from here on a call waits to be taken: it was refused until the server had started
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    threading.Thread(target=_stop_with, args=(pipe, server), daemon=True).start()
    pipe.send(listening.getsockname()[1])
    server.run(sockets=[listening])


def _stop_with(pipe: Connection, server: Any) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        server.should_exit = True
