"""One run in several processes: what the first of them decides holds for all, and what each has found all know.

A run is written as if it were alone. What it reads from files or the clock it takes from the first process, and only
that one writes. In a single process, and where torch was never loaded, all of this is nothing.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

T = TypeVar("T")


def num_ranks() -> int:
    group = _group()
    return 1 if group is None else int(group.get_world_size())


def rank() -> int:
    group = _group()
    return 0 if group is None else int(group.get_rank())


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def agree(value: T) -> T:
    """The first process's value, in all. Nobody goes on before it is there."""
    group = _group()
    if group is None:
        return value
    box: list[T] = [value]
    group.broadcast_object_list(box)
    return box[0]


def pool(value: T) -> list[T]:
    """Every process's value, in order, in all."""
    group = _group()
    if group is None:
        return [value]
    values: list[T] = [value] * num_ranks()
    group.all_gather_object(values, value)
    return values


def _group() -> Any:
    """torch's process group, where there is one. Whoever has not loaded torch is in none."""
    dist: Any = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None
