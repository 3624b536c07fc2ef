"""Python's collector is spared while a GPU works, and as it was afterwards."""

from __future__ import annotations

import gc

from jade.backbone.local.collector import SELDOM, USUAL, resume_collector, spare_collector


def test_the_collector_looks_seldom_and_only_at_what_is_new() -> None:
    spare_collector()
    try:
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (SELDOM, *USUAL[1:])
    finally:
        resume_collector()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == USUAL
