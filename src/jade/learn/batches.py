"""Calls become right-padded batches of similar length, in which at most a tenth is padding.

Padding stands on the right and attention is causal, so no token of a call ever sees a pad and no mask is needed.

Shapes: B = calls of a batch, L = length of the longest, N = action tokens of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MAX_PADDING = 0.1


class Call(Protocol):
    """What can be learned from: a prompt and what was written after it. Transitions and examples are such."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...
    @property
    def action_ids(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls side by side. Token n of the batch's actions stands in row `row_N[n]`, at `column_N[n]`."""

    rows: tuple[int, ...]
    """Which calls of the list these are; their action tokens follow each other in this order."""
    ids_BL: Tensor
    row_N: Tensor
    column_N: Tensor

    @property
    def target_N(self) -> Tensor:
        return self.ids_BL[self.row_N, self.column_N]

    def to(self, device: torch.device) -> Batch:
        moved = (tensor.to(device, non_blocking=True) for tensor in (self.ids_BL, self.row_N, self.column_N))
        return Batch(self.rows, *moved)


def plan_batches(lengths: Sequence[int], tokens_per_batch: int) -> list[tuple[int, ...]]:
    """Which calls go together: longest first, until the batch is full or the next call would pad it too much."""
    plan: list[tuple[int, ...]] = []
    current: list[int] = []
    num_tokens = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        area = (len(current) + 1) * lengths[current[0] if current else row]
        too_padded = num_tokens + lengths[row] < (1 - MAX_PADDING) * area
        if current and (area > tokens_per_batch or too_padded):
            plan.append(tuple(current))
            current, num_tokens = [], 0
        current.append(row)
        num_tokens += lengths[row]
    return [*plan, tuple(current)] if current else plan


def make_batch(calls: Sequence[Call], rows: Sequence[int]) -> Batch:
    """The named calls, padded to the longest of them."""
    chosen = [calls[row] for row in rows]
    longest = max(map(length_of, chosen))
    ids_BL = torch.zeros(len(chosen), longest, dtype=torch.long)
    row_N: list[int] = []
    column_N: list[int] = []
    for row, call in enumerate(chosen):
        whole = (*call.prompt_ids, *call.action_ids)
        ids_BL[row, : len(whole)] = torch.tensor(whole)
        row_N += [row] * len(call.action_ids)
        column_N += range(len(call.prompt_ids), len(whole))
    return Batch(tuple(rows), ids_BL, torch.tensor(row_N), torch.tensor(column_N))


def length_of(call: Call) -> int:
    return len(call.prompt_ids) + len(call.action_ids)


def padding_share(lengths: Sequence[int], plan: Sequence[Sequence[int]]) -> float:
    """Share of all the batches' places that hold padding."""
    places = sum(len(rows) * max(lengths[row] for row in rows) for rows in plan)
    return 1 - sum(lengths) / places if places else 0.0
