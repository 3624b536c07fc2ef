"""Torch's threads stay awake for a bounded time, and those of what is done once end with it."""

from __future__ import annotations

import importlib
import os
import sys
import threading

import pytest

from jade.backbone.local import threads
from jade.backbone.local.threads import SETTINGS, SPINS, in_passing


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that it is put back whatever is set meanwhile
        monkeypatch.delenv(name)
    return monkeypatch


def test_the_time_awake_is_bounded_before_torch_is_loaded(nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.delitem(sys.modules, "torch", raising=False)
    importlib.reload(threads)
    assert os.environ["GOMP_SPINCOUNT"] == str(SPINS)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_user_has_set_stays(name: str, nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.setenv(name, "of my own")
    nothing_set.delitem(sys.modules, "torch", raising=False)
    importlib.reload(threads)
    assert {key: os.environ.get(key) for key in SETTINGS} == dict.fromkeys(SETTINGS) | {name: "of my own"}


def test_what_would_come_too_late_is_not_set(nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.setitem(sys.modules, "torch", sys.modules[__name__])
    importlib.reload(threads)
    assert "GOMP_SPINCOUNT" not in os.environ


def test_what_is_done_in_passing_leaves_no_thread(nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.setenv("GOMP_SPINCOUNT", "10")
    worker = in_passing(threading.current_thread)
    assert worker is not threading.current_thread()
    worker.join()


def test_where_nothing_is_bounded_it_is_done_here(nothing_set: pytest.MonkeyPatch) -> None:
    assert in_passing(threading.current_thread) is threading.current_thread()


def test_an_error_in_passing_is_the_callers(nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.setenv("OMP_WAIT_POLICY", "passive")
    with pytest.raises(ZeroDivisionError):
        in_passing(lambda: 1 // 0)
