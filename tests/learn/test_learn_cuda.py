"""What only a GPU can show: the flash kernel over a packed row, in bfloat16, against float32 call by call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from learn_builders import make_transition

from jade.config import BackboneConfig, PolicyConfig
from jade.learn.batches import Batch, make_batch
from jade.learn.policy import Policy, load_policy
from jade.learn.tiny import TinySize, make_tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LENGTHS = (3, 64, 127, 128, 200)
"""Also multiples of 64, where another kernel was seen to give gradients that are not finite."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = TinySize(vocabulary=320, width=192, layers=3, heads=3, key_value_heads=1)
    return make_tiny_model(tmp_path_factory.mktemp("cuda"), ["Who wrote it? Ada did."] * 9, size)


def load(model: Path, device: str, *, compiled: bool = False) -> Policy:
    return load_policy(BackboneConfig(model=str(model), device=device), PolicyConfig(compile=compiled))


def gradients(policy: Policy, *, share: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs, and all gradients of their mean in one row. The second half of the calls has a prompt in common."""
    prompts = [(1, 2)] * len(LENGTHS) + [tuple(range(1, 150))] * len(LENGTHS)
    calls = [replace(make_transition(num_tokens=n), prompt_ids=p) for n, p in zip(LENGTHS * 2, prompts, strict=True)]
    batch: Batch = make_batch(calls, range(len(calls)), share=share).to(policy.device)
    logp_N = policy(batch).logp_N
    logp_N.mean().backward()
    rows = [weight.grad.flatten() for _, weight in policy.policy_parameters() if weight.grad is not None]
    return logp_N.detach().cpu(), torch.cat(rows).float().cpu()


@pytest.mark.filterwarnings("default")  # torch warns of itself while it compiles
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_packed_kernel_agrees_with_float32(model: Path, compiled: bool, share: bool) -> None:
    exact_logp, exact = gradients(load(model, "cpu"))
    logp, found = gradients(load(model, "cuda", compiled=compiled), share=share)
    assert bool(found.isfinite().all())
    assert float((logp - exact_logp).abs().mean()) < 0.02
    assert float((found - exact).norm() / exact.norm()) < 0.05
