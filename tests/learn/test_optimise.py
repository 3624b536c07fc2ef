"""Optimiser steps, where each is looked at before it is taken and where the device passes by itself.

torch's fused AdamW runs on a CPU too, and there as well it can be told to pass.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jade.learn.guard import Alarm
from jade.learn.optimise import Steps, take_step

CLIP = 1.0
WAYS = pytest.mark.parametrize("fused", [False, True])


def make_optimiser(fused: bool) -> torch.optim.AdamW:
    torch.manual_seed(0)
    groups = [[nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3))], [nn.Parameter(torch.randn(2))]]
    return torch.optim.AdamW(
        [{"params": group, "lr": rate, "fused": fused} for group, rate in zip(groups, (0.1, 0.2), strict=True)],
        weight_decay=0.0,
    )


def set_gradients(optimiser: torch.optim.Optimizer, number: int, spoil: float | None = None) -> None:
    generator = torch.Generator().manual_seed(number)
    for group in optimiser.param_groups:
        for weight in group["params"]:
            weight.grad = torch.randn(weight.shape, generator=generator)
    if spoil is not None:
        optimiser.param_groups[1]["params"][0].grad[1] = spoil


def everything(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """All weights, and all that the optimiser remembers of them."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    moments = [optimiser.state[weight][name] for weight in weights for name in ("step", "exp_avg", "exp_avg_sq")]
    return [tensor.detach().clone() for tensor in (*weights, *moments)]


def take_all(steps: Steps, optimiser: torch.optim.Optimizer, losses: list[float], spoil: float | None) -> list[float]:
    """Four steps, of which the second has this in its gradient."""
    for number, loss in enumerate(losses):
        set_gradients(optimiser, number, spoil if number == 1 else None)
        steps.take(torch.tensor(loss))
    return steps.norms()


@WAYS
@pytest.mark.parametrize(
    ("loss", "spoil", "said"),
    [
        (math.nan, None, r"not finite: the loss \(loss nan, gradient norm 2\.6"),
        (-math.inf, None, r"not finite: the loss \(loss -inf"),
        (0.5, math.inf, r"not finite: the gradient \(loss 0.5, gradient norm inf\)"),
        (0.5, math.nan, r"not finite: the gradient \(loss 0.5"),
    ],
)
def test_nothing_is_taken_from_the_first_step_on_that_is_not_finite(
    fused: bool, loss: float, spoil: float | None, said: str
) -> None:
    expected, optimiser = make_optimiser(fused), make_optimiser(fused)
    set_gradients(expected, 0)
    take_step(expected, torch.tensor(1.0), CLIP)
    with pytest.raises(Alarm, match=said):
        take_all(Steps(optimiser, CLIP), optimiser, [1.0, loss, 1.0, 1.0], spoil)
    for one, other in zip(everything(expected), everything(optimiser), strict=True):
        assert torch.equal(one, other)
    assert all(weight.grad is None for group in optimiser.param_groups for weight in group["params"])


@WAYS
def test_steps_taken_together_are_those_taken_one_by_one(fused: bool) -> None:
    together, single = make_optimiser(fused), make_optimiser(fused)
    norms = take_all(Steps(together, CLIP), together, [1.0] * 4, None)
    for number, norm in enumerate(norms):
        set_gradients(single, number)
        assert take_step(single, torch.tensor(1.0), CLIP) == norm
    for one, other in zip(everything(together), everything(single), strict=True):
        assert torch.equal(one, other)


def test_a_device_that_passes_by_itself_takes_the_steps_of_one_that_is_asked() -> None:
    plain, fused = (make_optimiser(fused) for fused in (False, True))
    norms = [take_all(Steps(one, CLIP), one, [1.0] * 4, None) for one in (plain, fused)]
    assert norms[0] == norms[1]
    for one, other in zip(everything(plain), everything(fused), strict=True):
        torch.testing.assert_close(one, other)


@WAYS
def test_the_next_steps_know_nothing_of_a_broken_one(fused: bool) -> None:
    optimiser, expected = make_optimiser(fused), make_optimiser(fused)
    set_gradients(optimiser, 0, math.nan)
    with pytest.raises(Alarm):
        take_step(optimiser, torch.tensor(1.0), CLIP)
    for one in (optimiser, expected):
        set_gradients(one, 1)
        take_step(one, torch.tensor(1.0), CLIP)
    for left, right in zip(everything(optimiser), everything(expected), strict=True):
        assert torch.equal(left, right)


def test_an_optimiser_that_passes_by_itself_is_never_waited_for_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Tensor] = []
    read_back = Tensor.tolist

    def note(tensor: Tensor) -> Any:
        read.append(tensor)
        return read_back(tensor)

    monkeypatch.setattr(Tensor, "tolist", note)
    optimiser = make_optimiser(True)
    steps = Steps(optimiser, CLIP)
    for number in range(4):
        set_gradients(optimiser, number)
        steps.take(torch.tensor(1.0))
    assert not read
    assert len(steps.norms()) == 4
    assert len(read) == 1


def test_no_steps_have_no_norms() -> None:
    assert Steps(make_optimiser(True), CLIP).norms() == []
