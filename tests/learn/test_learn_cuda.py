"""What only a GPU can show: flash and fused kernels over a packed row, in bfloat16, against float32 call by call."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from learn_builders import make_transition
from learn_kills import write_run
from test_learner import Breaking, make_mixed, weights_of
from torch import Tensor

from jade.config import BackboneConfig, LearnConfig, PolicyConfig, load_config
from jade.learn.batches import Batch, make_batch
from jade.learn.guard import Alarm
from jade.learn.layers.likelihood import has_kernels, token_likelihood
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run
from jade.learn.policy import Policy, load_policy
from jade.learn.rollouts.beside import Beside
from jade.learn.tiny import TinySize, make_tiny_model
from jade.types import Transition

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
UPDATING = ("look_back", "update", "look_after")
LENGTHS = (3, 64, 127, 128, 200)
"""Also multiples of 64, where another kernel was seen to give gradients that are not finite."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = TinySize(vocabulary=320, width=192, layers=3, heads=3, key_value_heads=1)
    return make_tiny_model(tmp_path_factory.mktemp("cuda"), ["Who wrote it? Ada did."] * 9, size)


WAYS: dict[str, dict[str, object]] = {"lean": {"fuse": False}, "fused": {"fuse": True}}


def load(model: Path, device: str, **settings: object) -> Policy:
    policy = load_policy(BackboneConfig(model=str(model), device=device), PolicyConfig.model_validate(settings))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in policy.policy_parameters():
            if "lora_B" in name:  # which begins as nothing, so that its other half would learn nothing
                weight.copy_(0.05 * torch.randn(weight.shape, generator=generator))
    return policy


def some_calls() -> list[Transition]:
    """The second half has a prompt in common."""
    prompts = [(1, 2)] * len(LENGTHS) + [tuple(range(1, 150))] * len(LENGTHS)
    return [replace(make_transition(num_tokens=n), prompt_ids=p) for n, p in zip(LENGTHS * 2, prompts, strict=True)]


def gradients(policy: Policy, *, share: bool = False, num_pieces: int = 1) -> tuple[Tensor, Tensor]:
    """Log-probs, and all gradients of their mean in one row."""
    calls, said = some_calls(), []
    with policy.unmoved():
        for piece in range(num_pieces):
            rows = range(piece * len(calls) // num_pieces, (piece + 1) * len(calls) // num_pieces)
            batch: Batch = make_batch(calls, rows, share=share).to(policy.device)
            logp_N = policy(batch).logp_N
            (logp_N.sum() / (2 * sum(LENGTHS))).backward()
            said.append(logp_N.detach().cpu())
    rows_of_grad = [weight.grad.flatten() for _, weight in policy.policy_parameters() if weight.grad is not None]
    return torch.cat(said), torch.cat(rows_of_grad).float().cpu()


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_packed_kernel_agrees_with_float32(model: Path, way: str, share: bool) -> None:
    exact_logp, exact = gradients(load(model, "cpu"))
    policy = load(model, "cuda", **WAYS[way])
    assert bool(policy._fused_on(policy.device)) == (way == "fused")
    logp, found = gradients(policy, share=share)
    assert bool(found.isfinite().all())
    assert float((logp - exact_logp).abs().mean()) < 0.02
    assert float((found - exact).norm() / exact.norm()) < 0.05


@pytest.mark.parametrize("num_pieces", [1, 4])
@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_fused_layers_are_as_close_to_float32_as_lean_ones(model: Path, adapt: str, num_pieces: int) -> None:
    exact_logp, exact = gradients(load(model, "cpu", adapt=adapt))
    gaps = []
    for way in ("lean", "fused"):
        policy = load(model, "cuda", adapt=adapt, **WAYS[way])
        logp, found = gradients(policy, share=True, num_pieces=num_pieces)
        gaps.append((float((logp - exact_logp).abs().mean()), float((found - exact).norm() / exact.norm())))
    (lean_said, lean_taught), (said, taught) = gaps
    assert said < 1.3 * lean_said + 0.001
    assert taught < 1.3 * lean_taught + 0.002


@pytest.mark.parametrize("num", [1, 15, 16, 17])
@pytest.mark.parametrize("shift", [0, 1, 8])
def test_kernels_launched_directly_do_what_triton_launches(
    num: int, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was compiled before: numbers of 1 and of 16, and tensors that begin at no multiple of 16 bytes."""
    from jade.learn.layers import kernels
    from jade.learn.layers.kernels import gate, low_rank, norm, turning
    from jade.learn.layers.launch import Form, Kernel

    def some(*shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        return torch.randn(size + shift, generator=generator).to("cuda", torch.bfloat16)[shift:].view(shape)

    def said(tensors: tuple[Tensor, ...]) -> list[Tensor]:
        x, delta, gain, both, low, above, place = tensors
        total = torch.ones(3, 48 + 48, 16, device="cuda")
        kernels.add_low_rank(both[:, :48], low, delta, above, total)
        turned = x.new_empty(num, 3, 16)
        kernels.turn(x.view(num, 3, 16), both[:, :8].contiguous(), both[:, 8:16].contiguous(), place, 2, turned)
        normed = kernels.add_norm(x, delta, gain, 1e-5)
        back = kernels.norm_back(delta, x, gain, x, 1e-5, with_gain=False)[0]
        learned = kernels.gated_back_learning(delta, both, above, total)
        assert learned is not None
        return [total, learned, turned, *normed, back, kernels.gated(both), *kernels.gated_back(delta, both)]

    generator = torch.Generator().manual_seed(num)
    shapes = ((num, 48), (num, 48), (48,), (num, 96), (num, 16), (num, 16))
    tensors = (*(some(*shape) for shape in shapes), torch.arange(num, device="cuda"))
    first, again = said(tensors), said(tensors)
    direct = [form for form in norm._add_norm._forms.values() if isinstance(form, Form)]
    assert direct, "no form of the kernel was kept: is this Triton known to jade/learn/layers/launch.py?"
    for room in (gate, low_rank, norm, turning):
        for kernel in (one for one in vars(room).values() if isinstance(one, Kernel)):
            monkeypatch.setattr(kernel, "_is_plain", True)
    for one, other, plain in zip(first, again, said(tensors), strict=True):
        assert torch.equal(one, plain)
        assert torch.equal(other, plain)


def test_an_update_with_fused_layers_repeats_itself(model: Path) -> None:
    """Gradients of shared tokens are added up in one order, and nothing else is left to chance."""
    (one, first), (two, second) = (gradients(load(model, "cuda", adapt="lora"), share=True) for _ in range(2))
    assert torch.equal(one, two)
    assert float((first - second).norm() / first.norm()) < 1e-3


def update_config(adapt: str, num_steps: int) -> LearnConfig:
    ppo = {"learning_rate": 1e-3, "minibatches": num_steps}
    policy = {"adapt": adapt, "critic": "none"}
    return LearnConfig.model_validate({"ppo": ppo, "policy": policy, "credit": {"rule": "group", "skip_even": False}})


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_the_device_takes_no_step_from_the_first_on_that_is_not_finite(model: Path, adapt: str) -> None:
    cfg = update_config(adapt, num_steps=4)
    learner = Breaking(load_policy(BackboneConfig(model=str(model), device="cuda"), cfg.policy), cfg)
    before = weights_of(learner)
    with pytest.raises(Alarm, match="not finite: the gradient"):
        learner.update(make_mixed(40), iteration=0, seed=1)
    assert learner.num_gathered == 4
    assert not all(torch.equal(one, other) for one, other in zip(before, learner.after_first, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(learner.after_first, weights_of(learner), strict=True))
    assert {float(state["step"]) for state in learner.optimiser.state.values()} == {1.0}


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_an_update_of_many_steps_waits_for_the_device_no_more_often_than_one_of_few(model: Path, adapt: str) -> None:
    waits = []
    for num_steps in (2, 8):
        cfg = update_config(adapt, num_steps)
        learner = Learner(load_policy(BackboneConfig(model=str(model), device="cuda"), cfg.policy), cfg)
        learner.update(make_mixed(40), iteration=0, seed=0)  # compiles, which may wait
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                learner.update(make_mixed(40), iteration=1, seed=1)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits.append(sum("synchronizing" in str(one.message) for one in said))
    assert waits[1] <= waits[0]


@pytest.mark.parametrize("of_entropy", [0.0, -0.3])
@pytest.mark.parametrize("learns", [False, True])
def test_likelihoods_of_real_sizes_agree_with_float32(learns: bool, of_entropy: float) -> None:
    """In the widths of an update: narrow states, products of float32 by tensor cores, a narrow gradient. The words have
    about as much in common as they differ by, as those of SmolLM2 do."""
    generator = torch.Generator("cuda").manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    state_NH, words_VH, weight_N = (1.5 * some(3000, 576)).bfloat16(), 0.13 * some(49152, 576), some(3000)
    words_VH += 0.09 * some(576)
    target_N = torch.randint(49152, (3000,), generator=generator, device="cuda")
    heat_N1 = 0.5 + torch.rand(3000, 1, generator=generator, device="cuda")
    found, before = [], torch.get_float32_matmul_precision()
    assert has_kernels(state_NH.device)
    for width, precision, fuse in ((torch.bfloat16, "high", True), (torch.float32, "highest", False)):
        states, words = state_NH.to(width).requires_grad_(), words_VH.clone().requires_grad_(learns)
        torch.set_float32_matmul_precision(precision)
        try:
            logp_N, entropy_N = token_likelihood(
                states, words, target_N, temperature=heat_N1, entropy_gradient=of_entropy != 0, fuse=fuse
            )
            loss = (weight_N * (logp_N + of_entropy * entropy_N)).sum()
            grads = torch.autograd.grad(loss, [states, words][: 1 + learns])
        finally:
            torch.set_float32_matmul_precision(before)
        found.append((logp_N.detach(), entropy_N.detach(), *grads))
        assert [grad.dtype for grad in grads] == [width, torch.float32][: 1 + learns]
    ours, exact = found
    for said, expected in zip(ours[:2], exact[:2], strict=True):
        assert float((said - expected).abs().mean()) < 5e-3
    for taught, expected in zip(ours[2:], exact[2:], strict=True):
        assert float((taught.float() - expected).norm() / expected.norm()) < 5e-3


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("adapt", ["full", "lora"])
async def test_a_sampler_in_a_process_beside_the_learner_speaks_with_its_weights(
    model: Path, tmp_path: Path, adapt: str, processes: int
) -> None:
    """Rollouts that are not behind are as close to the learner as those of a sampler in its own process."""
    gaps = {}
    for ahead in (False, True):
        (tmp_path / str(ahead)).mkdir()
        beside = {"ahead": ahead, "processes": processes if ahead else 0}
        learn = {**beside, "iterations": 6, "checkpoint_every": 3, "policy": {"adapt": adapt}}
        on_gpu = ["backbone.device=cuda", "backbone.max_prompt_tokens=800"]
        config = load_config(write_run(model, tmp_path / str(ahead), learn), on_gpu)
        async with open_run(config, tmp_path / str(ahead) / "run", Silent()) as run:
            await run.train()
            if isinstance(run.crew, Beside):
                assert run.crew.shelf.device.type == "cuda", "weights need not leave the GPU"
        rows = list(read_journal(tmp_path / str(ahead) / "run", "iteration"))
        assert all(0 < sum(row[f"seconds_{name}"] for name in UPDATING) <= row["seconds"] for row in rows)
        gaps[ahead] = max(row["logp_gap"] for row in rows if not row.get("lag"))
    assert gaps[True] < 2 * gaps[False] + 0.01
