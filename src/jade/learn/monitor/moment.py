"""Moments in a device's work, between which time is told without waiting for the device."""

from __future__ import annotations

import time

import torch


class Moment:
    """When the device comes to what has been asked of it by now. On a processor that is now."""

    def __init__(self, device: torch.device) -> None:
        self._at = time.perf_counter()
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(device))

    def until(self, later: Moment) -> float:
        """Seconds from here to there; waits until the device is past both."""
        if self._event is None or later._event is None:
            return later._at - self._at
        later._event.synchronize()
        milliseconds: float = self._event.elapsed_time(later._event)
        return milliseconds / 1000
