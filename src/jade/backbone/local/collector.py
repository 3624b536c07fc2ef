"""Python's garbage collector beside a GPU.

It stops all threads to look at every object there is. With torch and a model loaded that takes a sixth of a second,
once in some thousand requests, and a little of it hundreds of times in between, while the GPU runs out of work. So
objects that exist when work begins are frozen: the collector no longer looks at them. At what comes later it looks
seldom: requests and traces are freed by their reference counts, and leave hardly any cycles behind.
"""

from __future__ import annotations

import gc

USUAL = gc.get_threshold()
SELDOM = 50_000
"""New objects between two looks: a tenth of a second of rollouts."""


def spare_collector() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(SELDOM, *USUAL[1:])


def resume_collector() -> None:
    gc.unfreeze()
    gc.set_threshold(*USUAL)
