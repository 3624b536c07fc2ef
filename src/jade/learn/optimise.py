"""Optimiser steps: a gradient is checked, clipped and only then taken.

Whoever looks at a gradient waits for the device, which then has nothing to do until the next step has reached it. So
where the optimiser can be told on the device to pass, as torch's fused ones can, the check stays there, and loss and
norms are read once, behind the last step.

Shapes: F = figures of a step: its loss, and the norm of each group's gradient before clipping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from jade.learn.guard import Alarm
from jade.learn.shards import whole


def make_optimiser(groups: Sequence[tuple[list[nn.Parameter], float]]) -> torch.optim.AdamW:
    """AdamW without decay over (parameters, step size) groups; empty groups are left out."""
    rows: list[dict[str, Any]] = [{"params": params, "lr": rate, "peak": rate} for params, rate in groups if params]
    fused = rows[0]["params"][0].is_cuda
    return torch.optim.AdamW(rows, weight_decay=0.0, fused=fused)


def set_step_size(optimiser: torch.optim.Optimizer, share: float) -> None:
    """Every group's step size as a share of its peak."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * share


class Steps:
    """Optimiser steps that belong together. One whose loss or gradient is not finite is not taken, nor any after it."""

    def __init__(self, optimiser: torch.optim.Optimizer, max_norm: float) -> None:
        self._optimiser = optimiser
        self._max_norm = max_norm
        self._passes_itself = _can_pass(optimiser)
        self._figures_F: list[Tensor] = []
        self._broken: Tensor | None = None
        """On the device: 1 from the first step on that is not finite, 0 before."""

    def take(self, loss: Tensor) -> None:
        """Step along the gradients at hand, group by group clipped. An alarm comes from here, or from `norms`."""
        groups = self._optimiser.param_groups
        clipped = [whole(nn.utils.clip_grad_norm_(group["params"], self._max_norm)) for group in groups]
        figures_F = torch.stack([loss.detach(), *clipped])
        self._figures_F.append(figures_F)
        try:
            if self._passes_itself:
                broken = (~figures_F.isfinite()).any().float()
                self._broken = broken if self._broken is None else torch.maximum(self._broken, broken)
                _step_unless(self._broken, self._optimiser)
            else:
                _norm_of(figures_F.tolist())  # raises before the step is taken
                self._optimiser.step()
        finally:
            self._optimiser.zero_grad()

    def norms(self) -> list[float]:
        """The norm of each step's gradient before clipping; waits for the device. Raises an alarm, with the weights
        as they were before it, for the first step that was not finite."""
        return [_norm_of(figures) for figures in torch.stack(self._figures_F).tolist()] if self._figures_F else []


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor, max_norm: float) -> float:
    """A single step; gives the norm before clipping.

    Raises an alarm, with the weights untouched, when the loss or the gradient is not finite.
    """
    steps = Steps(optimiser, max_norm)
    steps.take(loss)
    (norm,) = steps.norms()
    return norm


def _norm_of(figures: Sequence[float]) -> float:
    value, *norms = figures
    if not math.isfinite(value) or not all(map(math.isfinite, norms)):
        what = "loss" if not math.isfinite(value) else "gradient"
        raise Alarm("not finite", f"the {what} (loss {value}, gradient norm {max(norms)})")
    return math.hypot(*norms)


def _can_pass(optimiser: torch.optim.Optimizer) -> bool:
    """Sharded weights are stepped by operations that take no whole tensor beside them."""
    groups = optimiser.param_groups
    sharded = any(isinstance(weight, DTensor) for group in groups for weight in group["params"])
    return all(group.get("fused") for group in groups) and not sharded


def _step_unless(broken: Tensor, optimiser: Any) -> None:
    """Where it is 1, weights and moments stay as they are and the step is not counted. Fused optimisers are told so by
    `found_inf`, an attribute that torch's gradient scaler sets for the same end."""
    optimiser.found_inf = broken
    try:
        optimiser.step()
    finally:
        del optimiser.found_inf
