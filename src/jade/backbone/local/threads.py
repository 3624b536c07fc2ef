"""Torch's threads on a CPU: how long they stay awake between two operations. To be imported before torch is.

GNU's OpenMP lets them wait awake for many milliseconds. On a busy machine that is time stolen from the thread they wait
for (six times slower, measured). Half a millisecond is enough to outlast the pauses of decoding, and is what is set
here. But where more threads are kept than there are processors, they fall asleep at once whatever is set, and waking
them for every operation costs more than the work they take over. Every thread that ever computed keeps threads of its
own: so what is done only once is done by `in_passing`, in a thread that ends.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")
SPINS = 10_000
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

if "torch" not in sys.modules and not any(name in os.environ for name in SETTINGS):
    os.environ[SETTINGS[0]] = str(SPINS)


def in_passing(work: Callable[[], Result]) -> Result:
    """Do it in a thread that ends, and with it those that torch kept for it.

    Where nothing bounds how long they stay awake, asleep is the lesser evil: then it is done here.
    """
    if not any(name in os.environ for name in SETTINGS):
        return work()
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    # Nobody waits for it at the end of the process: whoever stops a program does not want to see a model loaded.
    threading.Thread(target=run, name="jade-in-passing", daemon=True).start()
    return outcome.result()
