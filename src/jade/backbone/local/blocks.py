"""The sizes that an attention kernel is compiled for, the sampler's as the learner's. Needs no Triton."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """How much a program takes at once, and how the compiler is to lay it out."""

    rows: int
    keys: int
    warps: int
    stages: int
    """Steps of the inner loop whose numbers are on their way at the same time."""
