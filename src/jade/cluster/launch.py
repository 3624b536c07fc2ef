"""From a name to the engine that runs a training run in several processes: `torchrun` or `ray`."""

from __future__ import annotations

from jade.cluster.member import Task
from jade.errors import ConfigError
from jade.learn.check import check_alone
from jade.learn.checkpoint import Progress
from jade.learn.monitor.show import Spectator


def train_on(backend: str, task: Task, spectator: Spectator, workers: int = 1, address: str | None = None) -> Progress:
    """Train with so many learners on the named engine."""
    check_alone(task.config, f"--backend {backend}")
    learn = task.config.learn
    if learn.vllm.urls and learn.policy.adapt == "lora" and workers > 1:
        raise ConfigError("learn.policy.adapt: adapters cannot go from several learners to learn.vllm.urls; use full")
    if backend == "ray":
        from jade.cluster.ray_train import train_with_ray

        return train_with_ray(task, spectator, workers, address)
    if address is not None:
        raise ConfigError(
            f"--address: {address!r} is for --backend ray; on several machines start `torchrun … -m jade train` there"
        )
    from jade.cluster.torchrun import train_with_torchrun

    return train_with_torchrun(task, spectator, workers)
