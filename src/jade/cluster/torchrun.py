"""`--backend torchrun`: the same loop in several processes, started and kept alive by torch's own launcher.

Without more, the processes are started on this machine. Where `torchrun` has started this process already (on several
machines, say), it takes its place among the others.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from jade.cluster.machine import apart, check_memory, check_versions, installed_versions, this_machine
from jade.cluster.member import Task, assembly, progress_in, share_cores, take_part
from jade.cluster.watch import watching
from jade.config import Config
from jade.errors import JadeError, TrainingStopped
from jade.learn.check import check_training
from jade.learn.checkpoint import Progress
from jade.learn.monitor.show import Spectator
from jade.learn.open import claimed
from jade.learn.ranks import agree, is_first, num_ranks, pool


def train_with_torchrun(task: Task, spectator: Spectator, workers: int) -> Progress:
    """Train in `workers` processes, or as one of those that `torchrun` has started."""
    check_training(task.config)
    if "RANK" in os.environ:
        return _join(task, spectator)
    check_memory(task.config, [this_machine()], workers, workers)
    with (
        claimed(task.config, task.folder, task.resume),
        watching(task.folder, spectator, task.config.learn.iterations),
    ):
        _launch(task, workers)
    return progress_in(task.folder)


def launch_settings(workers: int, restarts: int) -> LaunchConfig:
    """Processes on this machine alone, meeting at a port that is free."""
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        start_method="forkserver",
    )


def _launch(task: Task, workers: int) -> None:
    settings = launch_settings(workers, task.config.cluster.restarts)
    # All processes, those that are started again as well, come from one that has loaded torch already.
    multiprocessing.set_forkserver_preload([__name__])
    # Else processes that are started again may find the addresses of those that died, and wait for them.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    # The launcher prints each failure at length; what became of the run is said once, here.
    for name in ("torch.distributed.elastic", "torch.multiprocessing.spawn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        outcomes: dict[int, TrainingStopped | None] = elastic_launch(settings, work)(task)
    except ChildFailedError as failed:
        raise _explained(failed) from None
    except SignalException:
        raise KeyboardInterrupt from None
    if outcomes[0] is not None:
        raise outcomes[0]


def _explained(failed: ChildFailedError) -> JadeError:
    """The first failure, in one line."""
    number, failure = failed.get_first_failure()
    message = failure.message if isinstance(failure.message, str) else failure.message["message"]
    why = " ".join(message.split()) or f"exit code {failure.exitcode}"
    return TrainingStopped(f"learner {number} died too often ({why}); give --resume to go on from the last checkpoint")


@record
def work(task: Task) -> TrainingStopped | None:
    """One of the processes that were started here."""
    with joined(task.config):
        share_cores(task.config, num_ranks())
        return take_part(placed(task), assembly(task.config))


def _join(task: Task, spectator: Spectator) -> Progress:
    """One of the processes that torchrun has started, perhaps on several machines."""
    with joined(task.config), ExitStack() as held:
        machines = pool(this_machine())
        check_versions(agree(installed_versions()), machines)
        check_memory(task.config, apart(machines), num_ranks(), num_ranks())
        # Only the first takes the folder, and all hear of it: else the others would wait for one that has given up.
        problem = agree(_claim(task, held) if is_first() else None)
        if problem is not None:
            raise problem
        share_cores(task.config, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        stopped = take_part(placed(task), assembly(task.config), spectator if is_first() else None)
        if stopped is not None:
            raise stopped
        return progress_in(task.folder)


def _claim(task: Task, held: ExitStack) -> JadeError | None:
    """What speaks against taking the folder; else it is held until the run has ended."""
    try:
        held.enter_context(claimed(task.config, task.folder, task.resume))
    except JadeError as error:
        return error
    return None


@contextmanager
def joined(config: Config) -> Iterator[None]:
    """Be a member of the process group that the environment names."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(minutes=config.cluster.patience_minutes)
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def placed(task: Task) -> Task:
    """Each process on a machine with several GPUs has its own."""
    backbone = task.config.backbone
    if backbone.device not in ("auto", "cuda") or not torch.cuda.is_available():
        return task
    here = backbone.model_copy(update={"device": f"cuda:{os.environ.get('LOCAL_RANK', '0')}"})
    return replace(task, config=task.config.model_copy(update={"backbone": here}))
