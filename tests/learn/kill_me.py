"""One training run from its config, to be killed at any moment by whoever started it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jade.config import load_config
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run


def train(config: Path, folder: Path) -> None:
    """Begin the run, or go on with it, to its end."""
    asyncio.run(_train(config, folder))


async def _train(config: Path, folder: Path) -> None:
    async with open_run(load_config(config), folder, Silent(), resume=True) as run:
        await run.train()
