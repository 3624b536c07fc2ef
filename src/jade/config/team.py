"""Who works, how they draw their words, and what a question may cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from jade.config.section import Section

PositiveOrZero: TypeAlias = Annotated[float, Field(ge=0.0)]


class TeamConfig(Section):
    workflows: tuple[str, ...] = ()
    """The workflows the planner may choose from, printed ("QDS", "R,AG"); empty means all that the grammar allows.
    With exactly one, no planner is called. "S1" alone leaves questions to one policy that searches and answers in one
    context."""
    child_workflows: tuple[str, ...] = ()
    """The same for sub-questions; empty means as `workflows`."""
    prompts: Path | None = None
    """A folder of `<role>.md` files that replace the shipped prompts of the same name."""
    extensions: tuple[str, ...] = ()
    """Modules or .py files with roles and tools of one's own; each has `register(team)`."""
    ask_first: tuple[str, ...] = ()
    """Roles, by code, that are told the question before what they read as well as after it: a model that reads forwards
    then reads passages with the question in mind. Teach a role the way it is asked."""
    constrain_plans: bool = False
    """Decode plans so that they are always legal. Inference only: masking changes what is learned from."""


class SamplingConfig(Section):
    temperature: float = Field(0.0, ge=0.0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Nucleus sampling; keep 1 in training, where log-probs must be those of the full distribution."""
    role_temperature: dict[str, PositiveOrZero] = Field(default_factory=dict)
    """Roles with a temperature of their own, by code."""

    def temperature_of(self, role: str) -> float:
        return self.role_temperature.get(role, self.temperature)


class BudgetConfig(Section):
    rounds: int = Field(8, ge=1)
    """Planner turns a question may take. Parallel sub-questions get equal shares of what is left of turns, searches,
    calls and tokens; one that needs more waits for what the others leave, the first sub-question first."""
    depth: int = Field(2, ge=0)
    """How deep decomposition may nest; 0 forbids it. A plan to split further is not malformed: it is refused, the plain
    plan runs, and the trace says so."""
    children: int = Field(4, ge=1)
    """Sub-questions one decomposition may ask; the rest are dropped, and the trace says so."""
    retrievals: int = Field(8, ge=0)
    """Searches a question may make."""
    search_turns: int = Field(4, ge=1)
    """Searches that a policy which works alone (S1) may make before it has to answer."""
    calls: int = Field(64, ge=1)
    """Model calls a question may make."""
    tokens: int = Field(65536, ge=1)
    """Tokens, read and written, a question may use."""
    seconds: float | None = Field(None, gt=0.0)
    """Wall-clock time a question may take; not given: no limit. With one, answers depend on how fast the machine is and
    on how many questions wait for each other: leave it out where they are learned from or compared."""
