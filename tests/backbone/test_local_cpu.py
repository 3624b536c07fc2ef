"""On a CPU, models of the Llama family give the plain model's logits in fewer operations, from the model's own weights;
others run through transformers' layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from backbone_builders import SIZES, make_model, recomputed_logprobs
from local_builders import PROMPTS, alone, opened, together
from transformers import AutoModelForCausalLM, Qwen3Config

from jade.backbone.local.attention import DecodeLayout, PrefillLayout, Span
from jade.backbone.local.cpu import CpuDecoder, can_run_on_cpu
from jade.backbone.local.runner import Runner
from jade.backbone.local.slots import CacheShape, Slots
from jade.types import Sampling

KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with biases": {"kind": "llama", "attention_bias": True, "mlp_bias": True},
    "llama with tied embeddings": {"kind": "llama", "tie_word_embeddings": True},
    "llama with wide heads": {"kind": "llama", "head_dim": 16, "rms_norm_eps": 1e-2},
    "qwen2": {"kind": "qwen2"},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def make_kind(kind: str, seed: int = 0) -> Any:
    """With biases and norms that would be missed."""
    model = make_model(seed=seed, **KINDS[kind])
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight += 0.3 * torch.randn_like(weight)
    return model


def make_slots(model: Any) -> Slots:
    """That hold old rubbish."""
    slots = Slots(CacheShape.of(model.config), torch.device("cpu"), torch.float32)
    slots.reserve(4, 64, 8)
    slots.kv.normal_()
    return slots


def make_ids(num: int, seed: int) -> torch.Tensor:
    return torch.randint(3, 300, (num,), generator=torch.Generator().manual_seed(seed))


def plain_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(ids[None]).logits[0]
    return logits


@torch.no_grad()
def check_logits(decoder: CpuDecoder, plain: Any) -> None:
    """Two prompts in one row, one of them in two parts, then a token for each."""
    slots = make_slots(plain)
    one, two = make_ids(21, 1), make_ids(9, 2)
    decoder.logits(two[:5], PrefillLayout(slots.kv, [Span(0, 0, 5, 0)]), None)
    spans = [Span(1, 0, 20, 0), Span(0, 20, 23, 5)]
    read = decoder.logits(torch.cat((one[:-1], two[5:-1])), PrefillLayout(slots.kv, spans), torch.tensor([3, 19, 22]))
    expected = plain_logits(plain, one), plain_logits(plain, two)
    close: dict[str, Any] = {"atol": 1e-4, "rtol": 0}
    torch.testing.assert_close(read, torch.stack((expected[0][3], expected[0][19], expected[1][7])), **close)
    layout = DecodeLayout(slots.kv, torch.tensor([8, 20]), 24)
    step = decoder.logits(torch.stack((two[-1], one[-1])), layout, None)
    torch.testing.assert_close(step, torch.stack((expected[1][-1], expected[0][-1])), **close)


@EVERY_KIND
def test_prompts_prefixes_and_steps_have_the_logits_of_the_plain_model(kind: str) -> None:
    check_logits(CpuDecoder(make_kind(kind)), make_kind(kind))


@EVERY_KIND
def test_weights_stay_the_models_own_and_new_ones_are_used(kind: str) -> None:
    model, other = make_kind(kind), make_kind(kind, seed=4)
    decoder = CpuDecoder(model)
    for name, weight in make_kind(kind).state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    ids = make_ids(12, 3)
    with torch.no_grad():
        torch.testing.assert_close(plain_logits(model, ids), plain_logits(make_kind(kind), ids), atol=1e-5, rtol=0)
    model.load_state_dict(other.state_dict())
    check_logits(decoder, other)


@EVERY_KIND
def test_two_decoders_over_one_model_hold_its_weights_once(kind: str) -> None:
    model = make_kind(kind)
    first = CpuDecoder(model)
    places = [weight.data_ptr() for weight in model.parameters()]
    second = CpuDecoder(model)
    assert [weight.data_ptr() for weight in model.parameters()] == places
    other = make_kind(kind, seed=4)
    model.load_state_dict(other.state_dict())
    check_logits(first, other)
    check_logits(second, other)


async def test_fewer_operations_draw_what_the_models_own_layers_draw() -> None:
    samplings = {}
    for fuse in (True, False):
        async with opened(fuse=fuse, inline=True) as backbone:
            samplings[fuse] = await together(backbone, lambda i: Sampling(i % 3 / 2, max_tokens=12, seed=i))
    for one, two in zip(samplings[True], samplings[False], strict=True):
        assert one.token_ids == two.token_ids
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-4)


async def test_a_model_of_another_kind_runs_through_its_own_layers() -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = SIZES | {"vocab_size": 320, "head_dim": 8}
    config = Qwen3Config(eos_token_id=2, initializer_range=0.3, **sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    assert not can_run_on_cpu(model)
    found = await alone(PROMPTS[0], Sampling(1.0, max_tokens=8), model)
    expected = recomputed_logprobs(model, found.prompt_ids, found.token_ids, 1.0)
    assert found.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize("change", [{"hidden_act": "gelu"}, {"dtype": torch.bfloat16}])
def test_other_activations_and_precisions_are_left_to_the_model(change: dict[str, Any]) -> None:
    dtype = change.pop("dtype", torch.float32)
    model = make_model(**change).to(dtype)
    assert can_run_on_cpu(make_model())
    assert not can_run_on_cpu(model)
    before = [weight.data_ptr() for weight in model.parameters()]
    Runner(model, {2})
    assert [weight.data_ptr() for weight in model.parameters()] == before
