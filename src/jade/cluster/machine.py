"""What a machine must bring to take part in a run: the same packages, and memory for the model.

Both are known before any work is done, and each complaint is one line.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jade.backbone.open import is_url
from jade.backbone.weights import resolve_weights
from jade.config import Config
from jade.errors import ConfigError

PACKAGES = ("jade-team", "torch", "transformers")
"""Packages whose versions must be the same everywhere, or the same seed would not be the same run."""
LEARNED_BYTES, FROZEN_BYTES = 16, 4
"""Of one weight in a learner: float32 with its gradient and two moments, or float32 alone."""
ANSWER_SECONDS = 60.0
CONTAINER = Path("/sys/fs/cgroup")
REMEDY = "use a smaller model, learn.policy.adapt = 'lora', or more machines"


@dataclass(frozen=True, slots=True)
class Machine:
    """One place where processes of a run may live."""

    name: str
    versions: Mapping[str, str]
    free_bytes: int
    """Memory that can still be had; 0 where that is not known."""
    gpu_bytes: int = 0
    """The same of its roomiest GPU; 0 where there is none as well."""


def this_machine(memory_limit: int = 0) -> Machine:
    """What is here. A limit that somebody has set counts as well."""
    limits = [size for size in (_free_bytes(), memory_limit) if size]
    return Machine(platform.node(), installed_versions(), min(limits, default=0), _gpu_bytes())


def installed_versions() -> dict[str, str]:
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def check_versions(ours: Mapping[str, str], machines: Sequence[Machine]) -> None:
    """Raises when a machine has another version of something that matters."""
    for machine in machines:
        for package, here in ours.items():
            there = machine.versions.get(package, "none")
            if there != here:
                raise ConfigError(
                    f"machine {machine.name} has {package} {there} and this one has {here}; install the same everywhere"
                )


def apart(machines: Sequence[Machine]) -> list[Machine]:
    """Each machine once, where every process has told its own."""
    return list({machine.name: machine for machine in machines}.values())


def check_memory(config: Config, machines: Sequence[Machine], learners: int, actors: int) -> None:
    """Raises when the model cannot fit: one process of it nowhere, or all of them together on all machines."""
    num_weights = count_weights(resolve_weights(config.backbone.model))
    weights = f"backbone.model: {config.backbone.model} has {num_weights / 1e6:,.0f} million weights"
    _check_gpus(config, machines, learners, num_weights, weights)
    if not machines or not all(machine.free_bytes for machine in machines):
        return
    learner, actor = learner_bytes(num_weights, config, learners), actor_bytes(num_weights, config)
    needed = learners * learner + actors * actor
    largest, free = max(m.free_bytes for m in machines), sum(m.free_bytes for m in machines)
    if max(learner, actor) > largest or needed > free:
        raise ConfigError(
            f"{weights}; {learners} learners and {actors} samplers need about {_gb(needed)}, up to "
            f"{_gb(max(learner, actor))} each, and {_gb(free)} are free; {REMEDY}"
        )


def _check_gpus(config: Config, machines: Sequence[Machine], learners: int, num_weights: int, weights: str) -> None:
    """Learning alone has to fit on a GPU, where there are any and learners may use them."""
    roomiest = max((machine.gpu_bytes for machine in machines), default=0)
    on_cpu = config.backbone.device == "cpu" or config.cluster.gpus_per_learner == 0
    needed = learning_bytes(num_weights, config, learners)
    if roomiest and not on_cpu and needed > roomiest:
        raise ConfigError(
            f"{weights}; each of {learners} learners needs about {_gb(needed)} of its GPU, and the roomiest has "
            f"{_gb(roomiest)} free; {REMEDY}"
        )


def count_weights(folder: Path) -> int:
    """Numbers in a folder of safetensors, read from the files' heads alone: the rest may not even fit into memory."""
    heads = [_head(path) for path in folder.glob("*.safetensors")]
    return sum(math.prod(tensor["shape"]) for head in heads for name, tensor in head.items() if name != "__metadata__")


def _head(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head: dict[str, Any] = json.loads(file.read(size))
    return head


def learner_bytes(num_weights: int, config: Config, learners: int) -> float:
    """Main memory of one learner: all that it learns with, or what it only loads there on the way to its GPU."""
    if config.cluster.gpus_per_learner:
        return FROZEN_BYTES * num_weights * _num_models(config)
    return learning_bytes(num_weights, config, learners)


def learning_bytes(num_weights: int, config: Config, learners: int) -> float:
    """Memory of the device on which one learner computes: for its shard of all that is learned with or, where that is
    more, for the whole weights from which its shard is cut when they are loaded."""
    models, policy = _num_models(config), config.learn.policy
    reference = 1 if config.learn.ppo.kl_weight else 0
    each = LEARNED_BYTES if policy.adapt == "full" else FROZEN_BYTES
    held = each * (models - reference) + FROZEN_BYTES * reference
    return max(FROZEN_BYTES * models, held / learners) * num_weights


def _num_models(config: Config) -> int:
    """The policy, a critic of its own, a reference."""
    return 1 + (config.learn.policy.critic == "separate") + (config.learn.ppo.kl_weight > 0)


def actor_bytes(num_weights: int, config: Config) -> float:
    """Main memory of a process that samples."""
    if is_url(config.backbone.model) or config.learn.vllm.urls:
        return 0.0
    return (2.0 if config.backbone.dtype == "bfloat16" else 4.0) * num_weights


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


def _free_bytes() -> int:
    """Memory that this process could still take, by the kernel's word and the container's."""
    known = [size for size in (_kernel_bytes(), _container_bytes()) if size]
    return min(known, default=0)


def _gpu_bytes() -> int:
    """What the driver's own tool says of the GPUs that this process may use."""
    program, visible = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if program is None or visible == "":
        return 0
    asked = [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits", *(("-i", visible) if visible else ())]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return max((int(size) << 20 for size in answer.split() if size.isdecimal()), default=0)


def _kernel_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    rows = dict(line.split(":", 1) for line in lines)
    return int(rows["MemAvailable"].split()[0]) * 1024


def _container_bytes() -> int:
    try:
        limit, used = ((CONTAINER / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return 0
    return 0 if limit == "max" else int(limit) - int(used)
