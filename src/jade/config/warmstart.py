"""How the team is trained on gold data first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from jade.config.section import ROLE_CODES, Part, Section

Count: TypeAlias = Annotated[int, Field(ge=0)]


class WarmstartConfig(Section):
    questions: tuple[Path, ...] = ()
    """Question files whose gold data becomes examples."""
    held_out: tuple[Path, ...] = ()
    """Question files for dev and test: examples that share a question, a hop or its evidence with them are dropped."""
    part: Part = (0.0, 1.0)
    """The part of each question file to take, from and to, by a hash of the ids: [0.0, 0.5] and [0.5, 1.0] share no
    question, so that a team can be trained on what its warm start has not seen."""
    per_file: int = Field(0, ge=0)
    """At most this many questions from each file; 0 takes all."""
    passes: int = Field(1, ge=1)
    """How often the oracle team works each question, each time by another plan where several are good."""
    shuffled: float = Field(0.0, ge=0.0, le=1.0)
    """Share of the questions worked whose passages are shown in another order than they were found in, each pass drawn
    anew. In the order of a search selectors learn which places are good, and little of what stands there."""
    plan_by: Literal["search", "hops", "none"] = "search"
    """Which questions the planner is taught to split, where gold says that they have several hops but not which:
    `search` leaves those whole whose own words find the answer, `hops` splits them all. `none` teaches it to split
    nothing, over executors that are taught to all the same: what pays is left to training."""
    split_gain: float = Field(1.0, gt=0.0, le=1.0)
    """What a split is taken to gain in F1: with a `reward.dial` the planner is taught to leave a question whole at
    prices at which splitting costs more. At 1 only prices that no answer could pay back are too dear."""
    other_plans: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the planner's examples that say some other plan than the gold one, drawn evenly, so that training finds
    every plan tried: what is never sampled is never learned from. Below about 0.8 the gold plan stays the likeliest; at
    0.84 all six plans are shown alike, and the warm start says nothing about what to plan."""
    best_traces: tuple[Path, ...] = ()
    """Trace files of the team itself; what it did in its best ones becomes examples too (rejection sampling)."""
    min_outcome: float = Field(0.8, ge=0.0, le=1.0)
    """Outcome from which a trace of the team's own is one of the best."""
    roles: tuple[str, ...] = ROLE_CODES
    """Roles that get examples."""
    per_role: int = Field(0, ge=0)
    """At most this many examples of one role from one dataset; 0 takes all."""
    role_examples: dict[str, Count] = Field(default_factory=dict)
    """Roles with a limit of their own in the place of `per_role`, by code; 0 takes all. With `per_role = 60` and
    `role_examples = { P = 0 }` the planner hears all of gold, and the executors are left to learn from rewards."""
    repeat: int = Field(1, ge=1)
    """How often at most the examples of a rare role are repeated, to bring it up to the median role."""
    epochs: int = Field(2, ge=1)
    """Passes over the examples."""
    learning_rate: float = Field(2e-4, gt=0.0)
    """Peak step size; it rises over the first 5 % of the steps and falls linearly to a tenth."""
    examples_per_step: int = Field(64, ge=1)
    """Examples in one optimiser step."""
    checkpoint_every: int = Field(200, ge=1)
    """Optimiser steps between checkpoints."""
