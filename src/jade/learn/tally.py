"""Figures of an update, summed token by token on the device, for all roles together and for each.

Shapes: N = action tokens of a piece, R = roles.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jade.learn.batches import Batch, send
from jade.learn.loss import TokenLoss, sum_by_role
from jade.learn.shards import add_up
from jade.types import Transition

TRACKED = ("policy", "value", "entropy", "reference_kl", "approx_kl", "clipped")


class Tally:
    """Running sums over one update."""

    def __init__(self, roles: Sequence[str], device: torch.device) -> None:
        self.roles = list(roles)
        self._sums = {name: torch.zeros(len(self.roles), device=device) for name in TRACKED}
        self._num_R = torch.zeros(len(self.roles), device=device)
        self._norms: list[float] = []
        self._num_whole = self._num_run = 0
        self._last_kl = torch.zeros(2, device=device)

    def add(self, loss: TokenLoss, batch: Batch, calls: Sequence[Transition]) -> None:
        """Count one piece; the calls are the batch's own, in order."""
        codes = torch.tensor([self.roles.index(call.role) for call in calls])
        lengths = torch.tensor([len(call.action_ids) for call in calls])
        role_N = send(codes.repeat_interleave(lengths), self._num_R.device)
        for name in TRACKED:
            self._sums[name] += self._by_role(getattr(loss, f"{name}_N"), role_N)
        self._num_R += self._by_role(torch.ones_like(loss.policy_N), role_N)
        self._last_kl += torch.stack([loss.approx_kl_N.sum(), torch.ones_like(loss.approx_kl_N).sum()])

        self._num_whole += batch.whole_bounds[-1]
        self._num_run += batch.bounds[-1]

    def _by_role(self, stat_N: Tensor, role_N: Tensor) -> Tensor:
        return sum_by_role(stat_N, role_N, len(self.roles))

    def begin_step(self) -> None:
        self._last_kl.zero_()

    def end_step(self, norm: float) -> None:
        self._norms.append(norm)

    def figures(self) -> dict[str, float]:
        """Means a token, over all and by role, and the steps' gradient norms. To be asked once: processes add up."""
        num_R = add_up(self._num_R).cpu()
        sums = {name: add_up(sum_R).cpu() for name, sum_R in self._sums.items()}
        overall = {name: float(sum_R.sum() / num_R.sum()) for name, sum_R in sums.items()}
        by_role = {
            f"{name}/{role}": float(sum_R[index] / num_R[index])
            for name, sum_R in sums.items()
            for index, role in enumerate(self.roles)
        }
        tokens = {f"tokens/{role}": float(num_R[index]) for index, role in enumerate(self.roles)}
        norms = {"gradient_norm": max(self._norms), "optimiser_steps": float(len(self._norms))}
        kl, num = add_up(self._last_kl).tolist()
        whole, run = add_up(torch.tensor([self._num_whole, self._num_run], device=self._num_R.device)).tolist()
        work = {"update_tokens": float(whole), "shared": 1 - run / whole}
        return overall | by_role | tokens | norms | work | {"last_kl": kl / num}
