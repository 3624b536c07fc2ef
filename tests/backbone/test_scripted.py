"""The scripted backbone is a function that looks like a model."""

from __future__ import annotations

import time

from jade.backbone.base import Backbone
from jade.backbone.scripted import ScriptedBackbone
from jade.types import Prompt, Sampling


async def test_a_script_answers_and_its_bytes_are_its_tokens() -> None:
    backbone = ScriptedBackbone(lambda prompt: f"{prompt.role}: né")
    assert isinstance(backbone, Backbone)
    found = await backbone.generate(Prompt("AG", "system ", "user"), Sampling())
    assert found.text == "AG: né"
    assert bytes(found.token_ids).decode() == found.text
    assert len(found.logprobs) == found.completion_tokens == len(found.token_ids)
    assert bytes(found.prompt_ids) == b"system user"
    assert backbone.num_calls == 1
    await backbone.close()


async def test_a_script_may_take_its_time() -> None:
    started = time.perf_counter()
    await ScriptedBackbone(lambda prompt: "", delay_seconds=0.05).generate(Prompt("AG", "", ""), Sampling())
    assert time.perf_counter() - started >= 0.05
