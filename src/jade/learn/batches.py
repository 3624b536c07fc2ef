"""Calls become packed batches: one behind the other in a single row, without padding and without a mask.

Which tokens belong together is said by where each call ends; attention runs inside those bounds. Calls that begin
alike, as rollouts of one question do, may share the beginning: it stands in the row once, and the calls that follow
add what is their own and look back on it.

Shapes: T = tokens of a row, C = its calls, S = tokens of its calls, each counted whole, N = its action tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Call(Protocol):
    """What can be learned from: a prompt and what was written after it. Transitions and examples are such."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...
    @property
    def action_ids(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls in one row. What call c adds to it stands from `bounds[c]` to `bounds[c + 1]`."""

    rows: tuple[int, ...]
    """Which calls of the list these are; their tokens follow each other in this order."""
    bounds: tuple[int, ...]
    whole_bounds: tuple[int, ...]
    """The same where every call is counted whole, with what it shares."""
    id_T: Tensor
    position_T: Tensor
    """The place of each token inside its call."""
    target_N: Tensor
    """The action tokens."""
    state_N: Tensor
    """Where in the row the states stand from which they are predicted: one token before each."""
    asked: tuple[tuple[int, int], ...]
    """For each call, among the tokens that it adds: the first whose state is asked for, and the one behind the last.
    All between them are asked for too, unless an odd order lets a prompt end inside the one before it."""
    place_S: Tensor | None = None
    """Where in the row the tokens of each whole call stand; none where nothing is shared."""
    idle: bool = False
    """Worked only to keep step with another process, and counted nowhere."""

    def to(self, device: torch.device) -> Batch:
        tensors = (self.id_T, self.position_T, self.target_N, self.state_N)
        id_T, position_T, target_N, state_N = (send(tensor, device) for tensor in tensors)
        place_S = None if self.place_S is None else send(self.place_S, device)
        return replace(self, id_T=id_T, position_T=position_T, target_N=target_N, state_N=state_N, place_S=place_S)


def plan_shares(
    calls: Sequence[Call], tokens_per_batch: int, num_shares: int, *, share: bool = False
) -> list[list[tuple[int, ...]]]:
    """Batches for each of several processes, as many for one as for another: sharded weights are gathered by all
    at once. Where a process has nothing left to do, its batch is empty. Calls that begin alike are neighbours."""
    order = sorted(range(len(calls)), key=lambda row: calls[row].prompt_ids)
    lengths = [length_of(call) for call in calls]
    added = _added([calls[row] for row in order]) if share else [lengths[row] for row in order]
    parts = cut_evenly(added, num_shares)
    by_row = dict(zip(order, added, strict=True))
    plans = [_fill([order[place] for place in part], lengths, by_row, tokens_per_batch) for part in parts]
    plans += [[] for _ in range(num_shares - len(plans))]
    most = max(map(len, plans))
    return [[*plan, *[()] * (most - len(plan))] for plan in plans]


def _fill(
    order: Sequence[int], lengths: Sequence[int], added: Mapping[int, int], tokens_per_batch: int
) -> list[tuple[int, ...]]:
    """Calls in their order, cut where a batch is full. The first of a batch counts whole, the others what they add."""
    total = sum(added[row] for row in order)
    # About equally full, rather than full ones and a rest: a batch of few tokens takes nearly as long as a full one.
    target = total / max(1, -(-total // tokens_per_batch))
    plan: list[list[int]] = []
    filled = 0
    for row in order:
        if not plan or filled + added[row] > tokens_per_batch or filled >= target:
            plan.append([])
            filled = 0
        filled += added[row] if plan[-1] else lengths[row]
        plan[-1].append(row)
    return [tuple(rows) for rows in plan]


def _added(calls: Sequence[Call]) -> list[int]:
    """Tokens that each call adds to the one before it."""
    before = [(), *(call.prompt_ids for call in calls)]
    return [length_of(call) - num_shared(last, call.prompt_ids) for last, call in zip(before, calls, strict=False)]


def num_shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many tokens two prompts begin with alike, found by halving: slices are compared faster than tokens."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def cut_evenly(lengths: Sequence[int], num_parts: int) -> list[range]:
    """Calls in their order, cut into parts of about equally many tokens; parts that would be empty are left out."""
    ends = list(accumulate(lengths))
    # A call belongs to the part in which its middle lies.
    part_of = [(2 * end - length) * num_parts // (2 * ends[-1]) for end, length in zip(ends, lengths, strict=True)]
    cuts = [bisect_left(part_of, part) for part in range(num_parts + 1)]
    return [range(start, end) for start, end in pairwise(cuts) if end > start]


def make_batch(calls: Sequence[Call], rows: Sequence[int], *, share: bool = False) -> Batch:
    """The named calls, one behind the other; each shares with the one before it what their prompts begin with."""
    added, placed, positions, states = [], [], [], []
    path, filled = np.arange(0), 0
    last: tuple[int, ...] = ()
    for call in (calls[row] for row in rows):
        shared = num_shared(last, call.prompt_ids) if share else 0
        size = length_of(call) - shared
        path = np.concatenate([path[:shared], np.arange(filled, filled + size)])
        added.append(_numbers((*call.prompt_ids, *call.action_ids)[shared:]))
        placed.append(path)
        positions.append(np.arange(shared, shared + size))
        # A token is predicted from the state one before it; the path leads there, also into what is shared.
        states.append(path[len(call.prompt_ids) - 1 : -1])
        last, filled = call.prompt_ids, filled + size
    bounds, whole_bounds = ((0, *accumulate(map(len, parts))) for parts in (added, placed))
    state_N = _row(states)
    return Batch(
        rows=tuple(rows),
        bounds=bounds,
        whole_bounds=whole_bounds,
        id_T=_row(added),
        position_T=_row(positions),
        target_N=_row([_numbers(calls[row].action_ids) for row in rows]),
        state_N=state_N,
        asked=_asked(bounds, state_N.numpy()),
        place_S=_row(placed) if whole_bounds != bounds else None,
    )


def _asked(bounds: tuple[int, ...], state_N: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """From the first of these places to behind the last one, in the part of the row that each call has added."""
    owner_N = np.searchsorted(bounds, state_N, side="right") - 1
    first_C, behind_C = np.array(bounds[1:]), np.array(bounds[:-1])
    np.minimum.at(first_C, owner_N, state_N)
    np.maximum.at(behind_C, owner_N, state_N + 1)
    empty_C = first_C > behind_C  # a call that adds nothing, or nothing that is asked for
    first_C[empty_C] = behind_C[empty_C]
    return tuple(zip(first_C.tolist(), behind_C.tolist(), strict=True))


def _numbers(ids: tuple[int, ...]) -> NDArray[np.int64]:
    """Of a known kind and number, which spares looking at each before it is taken."""
    return np.fromiter(ids, np.int64, len(ids))


def _row(parts: Sequence[NDArray[np.int64]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device, without waiting for what it is busy with: only from pinned memory can it copy by itself."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def length_of(call: Call) -> int:
    return len(call.prompt_ids) + len(call.action_ids)
