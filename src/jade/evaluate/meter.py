"""How much of the time somebody is waiting for the backbone: the share of the wall-clock that it works."""

from __future__ import annotations

import time
from dataclasses import replace

from jade.backbone.base import Backbone
from jade.team.crew import Crew
from jade.types import Generation, Prompt, Sampling


class Meter:
    """Adds up the time in which at least one call is with a backbone."""

    def __init__(self) -> None:
        self.num_calls = 0
        self._in_flight = 0
        self._busy_seconds = 0.0
        self._since = 0.0

    @property
    def busy_seconds(self) -> float:
        return self._busy_seconds + (time.perf_counter() - self._since if self._in_flight else 0.0)

    def begin(self) -> None:
        if not self._in_flight:
            self._since = time.perf_counter()
        self._in_flight += 1
        self.num_calls += 1

    def end(self) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._busy_seconds += time.perf_counter() - self._since


class Metered:
    """A backbone with a meter on it."""

    def __init__(self, backbone: Backbone, meter: Meter) -> None:
        self._backbone = backbone
        self._meter = meter

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self._meter.begin()
        try:
            return await self._backbone.generate(prompt, sampling)
        finally:
            self._meter.end()

    async def close(self) -> None:
        await self._backbone.close()


def metered(crew: Crew, meter: Meter) -> Crew:
    """The same crew with a meter on all its backbones."""
    by_role = {code: Metered(backbone, meter) for code, backbone in crew.cast.by_role.items()}
    return replace(crew, cast=replace(crew.cast, shared=Metered(crew.cast.shared, meter), by_role=by_role))
