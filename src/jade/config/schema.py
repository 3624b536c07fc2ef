"""All sections together."""

from __future__ import annotations

from pydantic import Field

from jade.config.backbone import BackboneConfig
from jade.config.cluster import ClusterConfig
from jade.config.evaluate import EvalConfig
from jade.config.learn import LearnConfig
from jade.config.retrieval import RetrievalConfig
from jade.config.reward import RewardConfig
from jade.config.section import Section
from jade.config.serve import ServeConfig
from jade.config.team import BudgetConfig, SamplingConfig, TeamConfig
from jade.config.warmstart import WarmstartConfig


class Config(Section):
    """Everything, one section for each room."""

    seed: int = 0
    """Of everything that is drawn."""
    team: TeamConfig = TeamConfig()
    sampling: SamplingConfig = SamplingConfig()
    budget: BudgetConfig = BudgetConfig()
    backbone: BackboneConfig = BackboneConfig()
    roles: dict[str, BackboneConfig] = Field(default_factory=dict)
    """Roles that speak with a backbone of their own, by code; the others share `backbone`."""
    retrieval: RetrievalConfig = RetrievalConfig()
    reward: RewardConfig = RewardConfig()
    learn: LearnConfig = LearnConfig()
    cluster: ClusterConfig = ClusterConfig()
    warmstart: WarmstartConfig = WarmstartConfig()
    eval: EvalConfig = EvalConfig()
    serve: ServeConfig = ServeConfig()
