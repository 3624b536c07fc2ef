"""An evaluation as a process of its own, to be killed: a scripted team that takes its time, differently every time.

Usage: python scripted_evaluation.py DATA OUT LAST_CALL     it is gone, as by SIGKILL, at that call of the model
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluate_builders import make_crew

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config
from jade.evaluate.methods import Method
from jade.evaluate.run import Request, evaluate
from jade.team.crew import Cast, Crew
from jade.types import Generation, Prompt, Sampling

REQUEST: dict[str, Any] = {"benchmarks": ("nq", "musique"), "methods": ("jade", "search-r1", "vanilla-rag")}
CONFIG = Config.model_validate({"seed": 7, "sampling": {"temperature": 1.0}, "eval": {"concurrency": 8}})
SAYS = {
    "P": ("<workflow>R,AG</workflow>", "<workflow>QDP</workflow>", "<workflow>AG</workflow>", "no plan"),
    "QDP": ("<q1>Who wrote Emma?</q1><q2>Who wrote Persuasion?</q2>", "?"),
    "QDS": ("<q1>Who wrote Emma?</q1><q2>Where was #1 born?</q2>",),
    "S1": ("<search>Emma novel</search>", "<answer>Jane Austen</answer>", "hm"),
}
ANSWERS = ("<answer>Jane Austen</answer>", "<answer>Steventon</answer>", "<answer>rain</answer>", "Emma")


class Moody(ScriptedBackbone):
    """Its words follow from the prompt and the seed of the draw, its speed from nothing; at times it fails."""

    def __init__(self, last_call: int) -> None:
        super().__init__(lambda prompt: "")
        self._calls_left = last_call

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self._calls_left -= 1
        if not self._calls_left:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(random.random() * 0.02)
        text = f"{prompt.role}|{prompt.user}|{sampling.seed}"
        draw = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
        if draw % 11 == 0:
            raise RuntimeError("out of sorts")
        choices = SAYS.get(prompt.role, ANSWERS)
        return replace(await super().generate(prompt, sampling), text=choices[draw // 11 % len(choices)])


def main(data: str, out: str, last_call: int = -1) -> None:
    @asynccontextmanager
    async def open_moody(config: Config, methods: Sequence[Method]) -> AsyncIterator[Crew]:
        yield replace(make_crew(lambda prompt: ""), cast=Cast(Moody(last_call)), sampling=config.sampling)

    asyncio.run(evaluate(Request(data=data, out=Path(out), **REQUEST), CONFIG, means=open_moody))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
