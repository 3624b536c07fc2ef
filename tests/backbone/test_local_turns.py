"""Captures happen alone; steps do not wait for each other; nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from jade.backbone.local.turns import Turns


def test_steps_run_side_by_side() -> None:
    turns, together = Turns(), threading.Barrier(3)

    def work() -> None:
        with turns.step():
            together.wait(timeout=30)

    run_all(work, 3)


def test_a_capture_is_alone_among_steps_and_captures() -> None:
    turns, lock = Turns(), threading.Lock()
    computing: set[int] = set()
    captures = []

    def engine() -> None:
        me, draw = threading.get_ident(), random.Random(threading.get_ident())
        for number in range(40):
            with turns.step():
                with lock:
                    computing.add(me)
                time.sleep(draw.random() / 2000)
                with lock:
                    computing.discard(me)
                if number % 5 == 0:
                    with turns.capture():
                        time.sleep(0.0005)
                        with lock:
                            captures.append(set(computing))

    run_all(engine, 4)
    assert len(captures) == 4 * 8
    assert not any(captures)


def test_an_error_in_a_capture_leaves_the_way_free() -> None:
    turns = Turns()

    def fail() -> None:
        with turns.step(), turns.capture():
            raise ValueError("no memory")

    def work() -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="no memory"):
                fail()
        with turns.capture():  # outside any step
            pass
        with turns.step():
            pass

    run_all(work, 1)


def run_all(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
