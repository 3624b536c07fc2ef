"""Calls become packed batches: one behind the other in a single row, without padding and without a mask.

Which tokens belong together is said by where each call ends; attention runs inside those bounds.

Shapes: T = tokens of a batch, C = its calls, N = its action tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Protocol

import torch
from torch import Tensor


class Call(Protocol):
    """What can be learned from: a prompt and what was written after it. Transitions and examples are such."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...
    @property
    def action_ids(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls in one row. Call c stands from `bounds[c]` to `bounds[c + 1]`."""

    rows: tuple[int, ...]
    """Which calls of the list these are; their tokens follow each other in this order."""
    bounds: tuple[int, ...]
    id_T: Tensor
    position_T: Tensor
    """The place of each token inside its call."""
    place_N: Tensor
    """Where in the row the action tokens stand."""
    idle: bool = False
    """Worked only to keep step with another process, and counted nowhere."""

    @property
    def target_N(self) -> Tensor:
        return self.id_T[self.place_N]

    def to(self, device: torch.device) -> Batch:
        id_T, position_T, place_N = (send(tensor, device) for tensor in (self.id_T, self.position_T, self.place_N))
        return replace(self, id_T=id_T, position_T=position_T, place_N=place_N)


def plan_batches(lengths: Sequence[int], tokens_per_batch: int) -> list[tuple[int, ...]]:
    """Which calls go together: as many as fit, of batches that are about equally full. Longer calls come first."""
    num_batches = max(1, -(-sum(lengths) // tokens_per_batch))
    target = sum(lengths) / num_batches
    plan: list[list[int]] = [[]]
    filled = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        full = filled + lengths[row] > tokens_per_batch or filled >= target
        if plan[-1] and full:
            plan.append([])
            filled = 0
        plan[-1].append(row)
        filled += lengths[row]
    return [tuple(rows) for rows in plan if rows]


def plan_shares(lengths: Sequence[int], tokens_per_batch: int, num_shares: int) -> list[list[tuple[int, ...]]]:
    """Batches for each of several processes, as many for one as for another: sharded weights are gathered by all
    at once. Where a process has nothing left to do, its batch is empty."""
    # Dealt out longest first, there and back: shares of about equally many tokens.
    turn = [*range(num_shares), *reversed(range(num_shares))]
    dealt: list[list[int]] = [[] for _ in range(num_shares)]
    for place, row in enumerate(sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))):
        dealt[turn[place % len(turn)]].append(row)
    plans = [_plan_of(sorted(rows), lengths, tokens_per_batch) for rows in dealt]
    most = max(map(len, plans))
    return [[*plan, *[()] * (most - len(plan))] for plan in plans]


def _plan_of(rows: Sequence[int], lengths: Sequence[int], tokens_per_batch: int) -> list[tuple[int, ...]]:
    plan = plan_batches([lengths[row] for row in rows], tokens_per_batch)
    return [tuple(rows[index] for index in batch) for batch in plan]


def cut_evenly(lengths: Sequence[int], num_parts: int) -> list[range]:
    """Calls in their order, cut into parts of about equally many tokens; parts that would be empty are left out."""
    ends = list(accumulate(lengths))
    # A call belongs to the part in which its middle lies.
    part_of = [(2 * end - length) * num_parts // (2 * ends[-1]) for end, length in zip(ends, lengths, strict=True)]
    cuts = [bisect_left(part_of, part) for part in range(num_parts + 1)]
    return [range(start, end) for start, end in pairwise(cuts) if end > start]


def make_batch(calls: Sequence[Call], rows: Sequence[int]) -> Batch:
    """The named calls, one behind the other."""
    chosen = [calls[row] for row in rows]
    bounds = (0, *accumulate(length_of(call) for call in chosen))
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    for call, end in zip(chosen, bounds[1:], strict=True):
        ids += call.prompt_ids
        ids += call.action_ids
        positions += range(length_of(call))
        places += range(end - len(call.action_ids), end)
    return Batch(tuple(rows), bounds, torch.tensor(ids), torch.tensor(positions), torch.tensor(places))


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device, without waiting for what it is busy with: only pinned memory is copied behind one's back."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def length_of(call: Call) -> int:
    return len(call.prompt_ids) + len(call.action_ids)
