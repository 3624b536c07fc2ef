"""One schema for everything that can be set: TOML in, dotted overrides, TOML out.

A config is frozen and checked once, when it is loaded; an ablation is a value here, never an edit of code.
Every field has its default, so an empty file is a valid config. One file for each section.
"""

from __future__ import annotations

from jade.config.backbone import BackboneConfig
from jade.config.cluster import ClusterConfig
from jade.config.dump import dump_config
from jade.config.evaluate import EvalConfig
from jade.config.learn import CreditConfig, GuardConfig, LearnConfig, PolicyConfig, PPOConfig
from jade.config.load import change_config, load_config
from jade.config.retrieval import RetrievalConfig
from jade.config.reward import RewardConfig
from jade.config.schema import Config
from jade.config.section import ROLE_CODES, Section
from jade.config.serve import ServeConfig
from jade.config.team import BudgetConfig, SamplingConfig, TeamConfig
from jade.config.vllm import VllmConfig
from jade.config.warmstart import WarmstartConfig

__all__ = [
    "ROLE_CODES",
    "BackboneConfig",
    "BudgetConfig",
    "ClusterConfig",
    "Config",
    "CreditConfig",
    "EvalConfig",
    "GuardConfig",
    "LearnConfig",
    "PPOConfig",
    "PolicyConfig",
    "RetrievalConfig",
    "RewardConfig",
    "SamplingConfig",
    "Section",
    "ServeConfig",
    "TeamConfig",
    "VllmConfig",
    "WarmstartConfig",
    "change_config",
    "dump_config",
    "load_config",
]
