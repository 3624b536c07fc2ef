"""A backbone that is a plain function: for tests, demonstrations and oracle teams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from jade.types import Generation, Prompt, Sampling


class ScriptedBackbone:
    """Answers with `script(prompt)`; `delay_seconds` stands in for a model's thinking time.

    Token ids are the text's bytes, so that traces of a scripted team can be flattened and trained on.
    """

    def __init__(self, script: Callable[[Prompt], str], delay_seconds: float = 0.0) -> None:
        self._script = script
        self._delay_seconds = delay_seconds
        self.num_calls = 0

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self.num_calls += 1
        started = time.perf_counter()
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)
        text = self._script(prompt)
        token_ids = tuple(text.encode())
        prompt_ids = tuple((prompt.system + prompt.user).encode())
        return Generation(
            text=text,
            prompt_ids=prompt_ids,
            token_ids=token_ids,
            logprobs=(0.0,) * len(token_ids),
            seconds=time.perf_counter() - started,
            prompt_tokens=len(prompt_ids),
            completion_tokens=len(token_ids),
        )

    async def close(self) -> None:
        return None
