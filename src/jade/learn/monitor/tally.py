"""Figures of an update, summed token by token on the device, for all roles together and for each.

Shapes: N = action tokens of a piece, R = roles, K = the tracked figures and the number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jade.learn.batches import Batch, send
from jade.learn.loss import TokenLoss, sum_by_role
from jade.learn.shards import add_up
from jade.types import Transition

TRACKED = ("policy", "value", "entropy", "reference_kl", "approx_kl", "clipped")


class Tally:
    """Running sums over one update. Nothing is read from the device before the end."""

    def __init__(self, roles: Sequence[str], device: torch.device) -> None:
        self.roles = list(roles)
        self._sum_KR = torch.zeros(len(TRACKED) + 1, len(self.roles), device=device)
        self._last_kl = torch.zeros((), device=device)
        self._num_last = self._num_whole = self._num_run = 0

    def add(self, loss: TokenLoss, batch: Batch, calls: Sequence[Transition]) -> None:
        """Count one piece; the calls are the batch's own, in order."""
        codes = torch.tensor([self.roles.index(call.role) for call in calls])
        lengths = torch.tensor([len(call.action_ids) for call in calls])
        role_N = send(codes.repeat_interleave(lengths), self._sum_KR.device)
        found_KN = torch.stack([*(getattr(loss, f"{name}_N") for name in TRACKED), torch.ones_like(loss.policy_N)])
        self._sum_KR += sum_by_role(found_KN, role_N, len(self.roles))
        self._last_kl += loss.approx_kl_N.sum()
        self._num_last += len(loss.approx_kl_N)
        self._num_whole += batch.whole_bounds[-1]
        self._num_run += batch.bounds[-1]

    def begin_step(self) -> None:
        self._last_kl.zero_()
        self._num_last = 0

    def figures(self, gradient_norms: Sequence[float]) -> dict[str, float]:
        """Means a token, over all and by role, and the steps' gradient norms. To be asked once: processes add up."""
        *sums, num_R = add_up(self._sum_KR).cpu()
        named = dict(zip(TRACKED, sums, strict=True))
        overall = {name: float(sum_R.sum() / num_R.sum()) for name, sum_R in named.items()}
        by_role = {
            f"{name}/{role}": float(sum_R[index] / num_R[index])
            for name, sum_R in named.items()
            for index, role in enumerate(self.roles)
        }
        tokens = {f"tokens/{role}": float(num_R[index]) for index, role in enumerate(self.roles)}
        norms = {"gradient_norm": max(gradient_norms), "optimiser_steps": float(len(gradient_norms))}
        kl = float(add_up(self._last_kl))
        counts = torch.tensor([self._num_last, self._num_whole, self._num_run], device=self._sum_KR.device)
        num, whole, run = add_up(counts).tolist()
        work = {"update_tokens": float(whole), "shared": 1 - run / whole}
        return overall | by_role | tokens | norms | work | {"last_kl": kl / num}
