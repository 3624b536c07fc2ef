"""How much of the work a program of the kernels takes."""

from __future__ import annotations

TILE = 4096
"""Numbers that a program holds of each tensor: enough to keep the memory busy, few enough for the registers."""
SLOTS = 264
"""Programs that an H200 works on at once: two on each of its processors, or one where it needs most of a processor's
memory. Those that make adapters' gradients all take equally long: a few more would take twice as long."""


def power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()


def cdiv(number: int, size: int) -> int:
    return -(-number // size)


def num_parts(tiles: int, most: int, *, alone: bool = False) -> int:
    """In how many parts tokens are added up, for each of so many tiles: as many as can be worked on at once. `alone`:
    by programs that need a processor each."""
    return min(most, max(1, (SLOTS // 2 if alone else SLOTS) // tiles))
