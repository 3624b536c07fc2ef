"""Runs one training run from its config, to be killed at any moment by the test that started it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from jade.config import load_config
from jade.learn.open import open_run
from jade.learn.show import Silent


async def main(config: Path, folder: Path) -> None:
    async with open_run(load_config(config), folder, Silent(), resume=True) as run:
        await run.train()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
