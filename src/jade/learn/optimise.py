"""One optimiser step: the gradient is checked, clipped and only then taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

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


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor, max_norm: float) -> float:
    """Step along the gradients at hand, group by group clipped to `max_norm`; gives the norm before clipping.

    Raises an alarm, with the weights untouched, when the loss or the gradient is not finite.
    """
    clipped = [whole(nn.utils.clip_grad_norm_(group["params"], max_norm)) for group in optimiser.param_groups]
    # Asked for together and last: whoever asks waits for the device, which meanwhile should have all its work.
    value, *norms = torch.stack([loss.detach(), *clipped]).tolist()
    if not math.isfinite(value) or not all(map(math.isfinite, norms)):
        optimiser.zero_grad()
        what = "loss" if not math.isfinite(value) else "gradient"
        raise Alarm("not finite", f"the {what} (loss {value}, gradient norm {max(norms)})")
    optimiser.step()
    optimiser.zero_grad()
    return math.hypot(*norms)
