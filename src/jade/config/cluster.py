"""How a run is spread over processes and machines; what it computes does not depend on this."""

from __future__ import annotations

from pydantic import Field

from jade.config.section import Section


class ClusterConfig(Section):
    actors: int = Field(0, ge=0)
    """Rollout actors of `--backend ray`; 0 is one for each learner."""
    cpus_per_learner: float = Field(1.0, gt=0.0)
    """Cores that Ray sets aside for a learner."""
    gpus_per_learner: float | None = Field(None, ge=0.0)
    """GPUs for a learner; 0 learns on the CPU, and not given takes what the cluster has."""
    cpus_per_actor: float = Field(1.0, gt=0.0)
    """Cores for a rollout actor."""
    gpus_per_actor: float | None = Field(None, ge=0.0)
    """GPUs for a rollout actor, in the same way; parts of one may be given."""
    wait_minutes: float = Field(0.0, ge=0.0)
    """How long to wait for a Ray cluster that grows by what is missing; 0 takes what is free when the run begins."""
    restarts: int = Field(3, ge=0)
    """How often learners are started again, from the last checkpoint, after one of them died."""
    patience_minutes: float = Field(720.0, gt=0.0)
    """How long learners wait for each other, through a whole rollout; one that died is noticed sooner."""
