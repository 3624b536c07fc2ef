"""`--backend ray`: Ray Train runs the learners, Ray actors do the rollouts, and Ray starts again whoever dies.

The learners are the same loop as everywhere. Their run folder must be one that all of their machines see.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchConfig, TorchTrainer

from jade.cluster.member import Task, assembly, progress_in, take_part
from jade.cluster.ray_actors import start_actors, troupe_of
from jade.cluster.ray_room import Room, connected
from jade.cluster.watch import watching
from jade.errors import JadeError, TrainingStopped
from jade.learn.check import check_training
from jade.learn.checkpoint import Progress
from jade.learn.monitor.show import Spectator
from jade.learn.open import Assemble, claimed

STOPPED = "stopped"


def train_with_ray(task: Task, spectator: Spectator, workers: int = 1, address: str | None = None) -> Progress:
    """Train with so many learners, on the cluster at an address or on this machine alone."""
    check_training(task.config)
    task = replace(task, folder=task.folder.resolve())
    with connected(task.config, workers, address) as room:
        iterations = task.config.learn.iterations
        with claimed(task.config, task.folder, task.resume), watching(task.folder, spectator, iterations):
            _fit(task, room)
    return progress_in(task.folder)


def _fit(task: Task, room: Room) -> None:
    on_gpu = room.gpus_per_learner > 0
    patience_seconds = round(60 * task.config.cluster.patience_minutes)
    # Ray would give learners a minute to start; on a busy machine, or on a new one, loading torch takes longer.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(patience_seconds))
    trainer = TorchTrainer(
        _learn,
        train_loop_config={"task": _placed(task, on_gpu), "assemble": _assembly(room), "folder": Path.cwd()},
        torch_config=TorchConfig(timeout_s=patience_seconds),
        scaling_config=ScalingConfig(num_workers=room.learners, use_gpu=on_gpu, resources_per_worker=room.learner),
        run_config=RunConfig(
            name="ray",
            storage_path=str(task.folder),
            failure_config=FailureConfig(max_failures=task.config.cluster.restarts),
        ),
    )
    try:
        result = trainer.fit()
    except TrainingFailedError as failed:
        raise _explained(failed) from None
    if result.metrics and STOPPED in result.metrics:
        raise TrainingStopped(result.metrics[STOPPED])


def _assembly(room: Room) -> Assemble:
    """vLLM servers are spoken to by the first learner itself; else there are actors."""
    if room.config.learn.vllm.urls:
        return assembly(room.config)
    return troupe_of(start_actors(room, room.config), room)


def _placed(task: Task, on_gpu: bool) -> Task:
    """A learner sees the GPU that Ray gave it, and no other."""
    own = task.config.backbone.model_copy(update={"device": "cuda" if on_gpu else "cpu"})
    return replace(task, config=task.config.model_copy(update={"backbone": own}))


def _learn(given: dict[str, Any]) -> None:
    """One learner: Ray Train has made it a member of the process group already."""
    os.chdir(given["folder"])
    stopped = take_part(given["task"], given["assemble"])
    if stopped is not None:
        # An outcome and not a failure: nothing is to be tried again.
        ray.train.report({STOPPED: str(stopped)})


def _explained(failed: TrainingFailedError) -> JadeError:
    """What happened to the first worker that failed, in one line."""
    failures: dict[int, Exception] = getattr(failed, "worker_failures", {})
    for error in failures.values():
        cause = getattr(error, "_base_exc", error)
        if isinstance(cause, JadeError):
            return cause
    number, error = next(iter(failures.items()), (0, failed))
    why = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
    return TrainingStopped(f"learner {number} died too often ({why}); give --resume to go on from the last checkpoint")
