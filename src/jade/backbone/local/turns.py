"""Who may use the GPU while a graph is captured: nobody else of this process.

Several engines may work in one process (roles with weights of their own), each in its thread. Their steps run side by
side; but torch captures graphs on one stream of the process. Runs with two engines were seen to end in an illegal
memory access while both met new shapes; that their captures met is the likeliest cause, not a proven one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Steps side by side, captures alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stepping: set[int] = set()
        self._capturing = False

    @contextmanager
    def step(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._capturing)
            self._stepping.add(me)
        try:
            yield
        finally:
            with self._changed:
                self._stepping.discard(me)
                self._changed.notify_all()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Waits until all others are between two steps; they do not begin another before this has ended."""
        me = threading.get_ident()
        with self._changed:
            within_a_step = me in self._stepping
            # Whoever waits here is not stepping, so that two who want to capture do not wait for each other.
            self._stepping.discard(me)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._stepping and not self._capturing)
            self._capturing = True
        try:
            yield
        finally:
            with self._changed:
                self._capturing = False
                if within_a_step:
                    self._stepping.add(me)
                self._changed.notify_all()


OF_THIS_PROCESS = Turns()
