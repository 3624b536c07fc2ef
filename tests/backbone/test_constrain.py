"""Constrained decoding ends in one of the choices, always, and its log-probs are those of the masked distribution."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest
import torch
from backbone_builders import make_model, make_prompt, make_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from jade.backbone.constrain import ChoiceGrammars, most_tokens
from jade.backbone.local.backbone import LocalBackbone
from jade.types import Generation, Sampling

TOKENIZER = make_tokenizer()
PLANS = tuple(
    f"<workflow>{plan}</workflow>" for plan in ("QDS", "QDP", "AG", "R,AG", "R,DS,AG", "QR,R,AG", "QR,R,DS,AG")
)
PROMPT = make_prompt("where is the river?", role="P")


async def sample(choices: tuple[str, ...], num: int, **sampling: float) -> list[Generation]:
    backbone = LocalBackbone(make_model(), TOKENIZER, device="cpu", inline=True, max_batch=250)
    draws = [
        backbone.generate(PROMPT, Sampling(seed=seed, choices=choices, **sampling))  # type: ignore[arg-type]
        for seed in range(num)
    ]
    found = await asyncio.gather(*draws)
    await backbone.close()
    return found


async def test_a_thousand_of_a_thousand_plans_of_a_random_model_are_legal() -> None:
    found = await sample(PLANS, 1000, temperature=1.0)
    counts = Counter(generation.text for generation in found)
    assert set(counts) <= set(PLANS)
    assert counts.total() == 1000
    assert len(counts) > 2
    assert all(generation.finish == "stop" for generation in found)


async def test_a_small_token_allowance_does_not_cut_a_choice_short() -> None:
    (found,) = await sample(PLANS, 1, max_tokens=1)
    assert found.text in PLANS


async def test_a_choice_that_begins_another_can_be_chosen_too() -> None:
    found = await sample(("a", "ab", "abc"), 200, temperature=3.0)
    assert {generation.text for generation in found} == {"a", "ab", "abc"}


async def test_log_probs_are_those_of_the_masked_distribution() -> None:
    (found,) = await sample(("no", "yes"), 1, temperature=1.0)
    model, grammar = make_model(), ChoiceGrammars(TOKENIZER, 320, {2}).start(("no", "yes"))
    ids = list(found.prompt_ids)
    for token, logp in zip(found.token_ids, found.logprobs, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        logits[~torch.from_numpy(grammar.allowed())] = -torch.inf
        assert logp == pytest.approx(logits.log_softmax(-1)[token].item(), abs=1e-4)
        ids.append(token)
        grammar.advance(token)


async def test_free_requests_beside_a_constrained_one_are_not_touched() -> None:
    backbone = LocalBackbone(make_model(), TOKENIZER, device="cpu")
    free = Sampling(1.0, max_tokens=12, seed=5)
    alone = await backbone.generate(PROMPT, free)
    plan, beside = await asyncio.gather(
        backbone.generate(PROMPT, Sampling(1.0, choices=PLANS)), backbone.generate(PROMPT, free)
    )
    await backbone.close()
    assert plan.text in PLANS
    assert beside.token_ids == alone.token_ids
    assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=4, unique=True))
def test_any_texts_can_be_choices_and_a_random_walk_ends_in_one(choices: list[str]) -> None:
    matcher = ChoiceGrammars(TOKENIZER, 320, {2}).start(choices)
    walk = np.random.default_rng(0)
    tokens: list[int] = []
    while not tokens or tokens[-1] != 2:
        tokens.append(int(walk.choice(np.flatnonzero(matcher.allowed()))))
        if tokens[-1] != 2:
            matcher.advance(tokens[-1])
    assert TOKENIZER.decode(tokens, skip_special_tokens=True) in choices
    assert len(tokens) <= most_tokens(choices)
