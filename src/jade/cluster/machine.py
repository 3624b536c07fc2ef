"""What a machine must bring to take part in a run: the same packages, and memory for the model.

Both are known before any work is done, and each complaint is one line.
"""

from __future__ import annotations

import json
import math
import platform
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


@dataclass(frozen=True, slots=True)
class Machine:
    """One place where processes of a run may live."""

    name: str
    versions: Mapping[str, str]
    free_bytes: int
    """Memory that can still be had; 0 where that is not known."""


def this_machine(memory_limit: int = 0) -> Machine:
    """What is here. A limit that somebody has set counts as well."""
    limits = [size for size in (_free_bytes(), memory_limit) if size]
    return Machine(platform.node(), installed_versions(), min(limits, default=0))


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
    if not machines or not all(machine.free_bytes for machine in machines):
        return
    num_weights = count_weights(resolve_weights(config.backbone.model))
    learner, actor = learner_bytes(num_weights, config, learners), actor_bytes(num_weights, config)
    needed = learners * learner + actors * actor
    largest, free = max(m.free_bytes for m in machines), sum(m.free_bytes for m in machines)
    if max(learner, actor) > largest or needed > free:
        raise ConfigError(
            f"backbone.model: {config.backbone.model} has {num_weights / 1e6:,.0f} million weights; {learners} "
            f"learners and {actors} samplers need about {_gb(needed)}, up to {_gb(max(learner, actor))} each, and "
            f"{_gb(free)} are free; use a smaller model, learn.policy.adapt = 'lora', or more machines"
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
    """Main memory of one learner: its shard of what is learned, and for a moment the whole of what it is cut from."""
    policy, with_reference = config.learn.policy, config.learn.ppo.kl_weight > 0
    models = 2 if policy.critic == "separate" else 1
    loaded = FROZEN_BYTES * num_weights * (models + with_reference)
    if config.cluster.gpus_per_learner:
        return loaded
    each = LEARNED_BYTES if policy.adapt == "full" else FROZEN_BYTES
    return max(loaded, (each * models + FROZEN_BYTES * with_reference) * num_weights / learners)


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


def _kernel_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    rows = dict(line.split(":", 1) for line in lines)
    return int(rows["MemAvailable"].split()[0]) * 1024


def _container_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return 0
    return 0 if limit == "max" else int(limit) - int(used)
