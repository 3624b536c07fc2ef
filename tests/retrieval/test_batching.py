"""Many small searches become few large ones, and everyone gets their own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from retrieval_builders import passages

from jade.errors import IndexUnusable, RetrievalFailed
from jade.retrieval.base import Retriever
from jade.retrieval.batching import BatchedRetriever
from jade.types import Passage
from patience import PATIENCE_SECONDS


class Recorder:
    """Finds the query itself; holds every search until `open` is set."""

    def __init__(self, is_open: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.started = threading.Event()
        self.open = threading.Event()
        self.closed = False
        if is_open:
            self.open.set()

    def find(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.batches.append(list(queries))
        self.threads.add(threading.get_ident())
        self.started.set()
        assert self.open.wait(PATIENCE_SECONDS)
        if "bad" in queries:
            raise ZeroDivisionError("oops")
        if "unusable" in queries:
            raise IndexUnusable("index x is damaged")
        return [passages([query] * k) for query in queries]

    def close(self) -> None:
        self.closed = True


async def test_what_arrives_during_a_search_goes_out_together() -> None:
    recorder = Recorder(is_open=False)
    retriever = BatchedRetriever(recorder)
    assert isinstance(retriever, Retriever)
    first = asyncio.create_task(retriever.search(["first"], 1))
    await asyncio.to_thread(recorder.started.wait)
    others = [asyncio.create_task(retriever.search([f"q{n}"], 1)) for n in range(100)]
    await asyncio.sleep(0.01)
    recorder.open.set()
    found = await asyncio.gather(first, *others)
    assert recorder.batches == [["first"], [f"q{n}" for n in range(100)]]
    assert [result[0][0].text for result in found] == ["first", *(f"q{n}" for n in range(100))]
    assert threading.get_ident() not in recorder.threads


async def test_inline_batches_are_the_same_in_every_run() -> None:
    async def run() -> tuple[list[list[str]], set[int]]:
        recorder = Recorder()
        retriever = BatchedRetriever(recorder, inline=True)

        async def question(name: str) -> None:
            for turn in range(3):
                await retriever.search([f"{name}{turn}"], 1)

        await asyncio.gather(*(question(name) for name in "abcd"))
        return recorder.batches, recorder.threads

    batches, threads = await run()
    assert batches == [[f"{name}{turn}" for name in "abcd"] for turn in range(3)]
    assert threads == {threading.get_ident()}
    assert (await run())[0] == batches


async def test_a_query_asked_twice_is_searched_once() -> None:
    recorder = Recorder()
    retriever = BatchedRetriever(recorder, inline=True)
    one, other = await asyncio.gather(retriever.search(["x", "y", "x"], 1), retriever.search(["y"], 1))
    assert recorder.batches == [["x", "y"]]
    assert [found[0].text for found in one] == ["x", "y", "x"]
    one[1].clear()
    assert other[0][0].text == "y"


async def test_requests_for_different_k_are_searched_apart() -> None:
    recorder = Recorder()
    retriever = BatchedRetriever(recorder, inline=True)
    found = await asyncio.gather(*(retriever.search(["x"], k) for k in (1, 2, 1)))
    assert [len(result[0]) for result in found] == [1, 2, 1]
    assert len(recorder.batches) == 2


async def test_a_batch_has_a_limit_that_one_request_may_exceed() -> None:
    recorder = Recorder()
    retriever = BatchedRetriever(recorder, inline=True, max_batch=2)
    sizes = [["a"], ["b"], ["c"], ["d", "e", "f"]]
    await asyncio.gather(*(retriever.search(queries, 1) for queries in sizes))
    assert recorder.batches == [["a", "b"], ["c"], ["d", "e", "f"]]


async def test_a_failing_search_fails_its_own_batch_only() -> None:
    retriever = BatchedRetriever(Recorder(), inline=True)
    failed = await asyncio.gather(
        retriever.search(["bad"], 1), retriever.search(["fine"], 1), retriever.search(["ok"], 2), return_exceptions=True
    )
    assert [type(found) for found in failed] == [RetrievalFailed, RetrievalFailed, list]
    assert "ZeroDivisionError('oops')" in str(failed[0])
    with pytest.raises(IndexUnusable):
        await retriever.search(["unusable"], 1)
    assert (await retriever.search(["fine"], 1))[0][0].text == "fine"


async def test_a_request_that_was_given_up_disturbs_no_other() -> None:
    recorder = Recorder(is_open=False)
    retriever = BatchedRetriever(recorder)
    given_up = asyncio.create_task(retriever.search(["a"], 1))
    await asyncio.to_thread(recorder.started.wait)
    waiting = asyncio.create_task(retriever.search(["b"], 1))
    await asyncio.sleep(0)
    given_up.cancel()
    recorder.open.set()
    assert (await waiting)[0][0].text == "b"


async def test_nothing_is_asked_for_nothing() -> None:
    recorder = Recorder()
    retriever = BatchedRetriever(recorder)
    assert await retriever.search([], 5) == []
    assert await retriever.search(["a", "b"], 0) == [[], []]
    assert recorder.batches == []


async def test_closing_lets_what_is_waiting_finish() -> None:
    recorder = Recorder()
    retriever = BatchedRetriever(recorder)
    waiting = asyncio.create_task(retriever.search(["a"], 1))
    await asyncio.sleep(0)
    await retriever.close()
    await retriever.close()
    assert (await waiting)[0][0].text == "a"
    assert recorder.closed
    with pytest.raises(RetrievalFailed, match="closed"):
        await retriever.search(["a"], 1)


def test_one_retriever_serves_one_event_loop_after_another() -> None:
    retriever = BatchedRetriever(Recorder())
    for query in ("a", "b"):
        assert asyncio.run(retriever.search([query], 1))[0][0].text == query
