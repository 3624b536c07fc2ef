"""A team with its means: who speaks with which backbone, where they search, what they may spend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from jade.backbone.base import Backbone
from jade.config import BackboneConfig, BudgetConfig, Config, SamplingConfig
from jade.errors import ConfigError
from jade.retrieval.base import Retriever
from jade.team.team import Team, build_team


@dataclass(frozen=True)
class Cast:
    """The backbone of every role: one shared by all, or its own for some."""

    shared: Backbone
    by_role: Mapping[str, Backbone] = field(default_factory=dict)
    only_priced: frozenset[str] = frozenset()
    """Roles that speak with their own only where they are told prices."""

    def of(self, code: str, *, priced: bool = False) -> Backbone:
        if code in self.only_priced and not priced:
            return self.shared
        return self.by_role.get(code, self.shared)

    async def close(self) -> None:
        """Close every backbone once, each whatever the others do."""
        async with AsyncExitStack() as stack:
            for backbone in {id(b): b for b in (self.shared, *self.by_role.values())}.values():
                stack.push_async_callback(backbone.close)


@dataclass(frozen=True)
class Crew:
    team: Team
    cast: Cast
    retriever: Retriever
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    k: int = 5


def open_cast(config: Config, shared: Backbone | None = None) -> Cast:
    """The backbones that a config names; `shared` stands in the place of the one that most roles share."""
    from jade.backbone.open import open_cast_backbones

    only_priced = frozenset(code for code, own in config.roles.items() if own.only_priced)
    return Cast(*open_cast_backbones(shared or config.backbone, config.roles), only_priced)


def check_own_backbones(team: Team, roles: Mapping[str, BackboneConfig]) -> None:
    """Whether every role that is given a backbone of its own is one of the team's."""
    # A planner for prices came with the weights; a team may have put another in the planner's place.
    unknown = sorted({code for code, own in roles.items() if not own.only_priced} - set(team.prompts))
    if unknown:
        raise ConfigError(f"roles.{unknown[0]}: no such role; there are {', '.join(team.prompts)}")


@asynccontextmanager
async def open_crew(
    config: Config, *, backbone: Backbone | None = None, retriever: Retriever | None = None
) -> AsyncIterator[Crew]:
    """Open all that a config names, and close it again whatever happens. A backbone or a retriever that is given
    stands in the place of the config's."""
    from jade.retrieval.open import open_retriever

    team = build_team(config.team)
    check_own_backbones(team, config.roles)
    async with AsyncExitStack() as stack:
        retriever = retriever or open_retriever(config.retrieval)
        stack.push_async_callback(retriever.close)
        cast = open_cast(config, backbone)
        stack.push_async_callback(cast.close)
        yield Crew(team, cast, retriever, config.budget, config.sampling, config.retrieval.k)
