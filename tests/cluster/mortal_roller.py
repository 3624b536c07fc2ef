"""A rollout actor without a model, which can be told to die: what Ray does for an actor that dies does not need one.

Where a file `kill-roller` stands in its folder, it dies (SIGKILL) in its next call, as often as there are lines in it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jade.types import Trace

ORDER = "kill-roller"


class MortalRoller:
    """Answers every question with the version of the weights that it was handed with it."""

    def __init__(self, folder: Path) -> None:
        self._order = folder / ORDER

    async def roll_out(
        self, jobs: Sequence[Any], sampling: Any, concurrency: int, version: int, parcel: Any
    ) -> list[Trace]:
        orders = self._order.read_text().splitlines() if self._order.is_file() else []
        if orders:
            self._order.write_text("\n".join(orders[1:]))
            os.kill(os.getpid(), signal.SIGKILL)
        return [Trace(job.question.id, job.question, (), (), answer=str(version)) for job in jobs]
