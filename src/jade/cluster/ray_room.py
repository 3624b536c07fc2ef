"""Ray, started on this machine or joined where it runs, and found to have room for a run before any work is done."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jade.backbone.weights import resolve_weights
from jade.cluster.machine import (
    Machine,
    check_memory,
    check_versions,
    count_weights,
    installed_versions,
    this_machine,
)
from jade.config import Config
from jade.errors import ConfigError

ANSWER_SECONDS = 20.0
LOOK_SECONDS = 1.0
"""Between two looks at a cluster that grows."""
SMALLEST_STORE_BYTES = 200_000_000
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS_FRAME = b"\x04"
"""How two sides of HTTP/2 begin to speak: each with a frame of its settings."""
HELD_VERSIONS = 2
"""Versions of the weights that may be in the object store at once: the one in use and the next."""


@dataclass(frozen=True, slots=True)
class Room:
    """What each process of a run is given."""

    learners: int
    actors: int
    gpus_per_learner: float
    gpus_per_actor: float
    config: Config

    @property
    def learner(self) -> dict[str, float]:
        return {"CPU": self.config.cluster.cpus_per_learner, "GPU": self.gpus_per_learner}

    @property
    def actor(self) -> dict[str, float]:
        return {"CPU": self.config.cluster.cpus_per_actor, "GPU": self.gpus_per_actor}

    def needed(self, kind: str) -> float:
        return self.learners * self.learner[kind] + self.actors * self.actor[kind]

    def bundles(self) -> list[dict[str, float]]:
        """What each process takes, none of which may be spread over two machines."""
        each = [self.learner] * self.learners + [self.actor] * self.actors
        return [{kind: amount for kind, amount in bundle.items() if amount} for bundle in each]


@contextmanager
def connected(config: Config, workers: int, address: str | None) -> Iterator[Room]:
    """A cluster that has all a run needs: the one that this process is in already, one at an address, or a new one."""
    actors = num_actors(config, workers)
    with _inside(config, workers, actors, address), grown(config, workers, actors) as room:
        machines = survey(limited=address is not None)
        check_versions(installed_versions(), machines)
        check_memory(config, machines, workers, actors)
        yield room


def num_actors(config: Config, learners: int) -> int:
    """Where vLLM servers do the rollouts there are none, and they take no GPU."""
    return 0 if config.learn.vllm.urls else config.cluster.actors or learners


@contextmanager
def _inside(config: Config, workers: int, actors: int, address: str | None) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    if address is None:
        _start(config, workers, actors)
    else:
        _join(address)
    try:
        yield
    finally:
        ray.shutdown()


def _start(config: Config, workers: int, actors: int) -> None:
    cpus = workers * config.cluster.cpus_per_learner + actors * config.cluster.cpus_per_actor
    weights = 4 * count_weights(resolve_weights(config.backbone.model))
    _init(
        address="local",  # not one that somebody else has started here
        # Cores are what Ray counts, not what it binds to: a run fits on any one machine.
        num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
        object_store_memory=SMALLEST_STORE_BYTES + HELD_VERSIONS * weights,
        include_dashboard=False,
    )


def _join(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if address != "auto" and (not colon or not port.isdecimal() or "/" in host):
        raise ConfigError(f"--address: {address!r} is not HOST:PORT; give a Ray cluster's own (its port is often 6379)")
    try:
        if address != "auto":
            _knock(host, int(port))
        _init(address=address)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"--address: no Ray cluster answers at {address} ({why}); start one there with `ray start --head`"
        ) from None


def _knock(host: str, port: int) -> None:
    """Raises unless something speaks HTTP/2 there, as Ray does; Ray itself would wait for minutes before it says so."""
    with socket.create_connection((host, port), ANSWER_SECONDS) as door:
        door.sendall(GREETING)
        if door.recv(9)[3:4] != SETTINGS_FRAME:
            raise ConnectionError("something else listens there")


def _init(**settings: Any) -> None:
    # Ray would announce a change of its defaults, and report its use to its makers.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)


def survey(*, limited: bool) -> list[Machine]:
    """Every machine of the cluster, as it sees itself; with the memory that Ray may give out there, if asked."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    looks = [_look_around(node, limited) for node in nodes]
    machines = []
    for node, look in zip(nodes, looks, strict=True):
        try:
            machines.append(ray.get(look))
        except ray.exceptions.RayError as error:
            reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            version = installed_versions()["jade-team"]
            raise ConfigError(
                f"machine {node['NodeManagerHostname']} cannot take part ({reason.strip()}); "
                f"install jade-team {version} there"
            ) from None
    return machines


def _look_around(node: Mapping[str, Any], limited: bool) -> Any:
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    look: Any = ray.remote(this_machine)
    look = look.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
    return look.remote(int(node["Resources"].get("memory", 0)) if limited else 0)


def ask_to_grow(bundles: list[dict[str, float]]) -> None:
    """Tell Ray's autoscaler, where there is one, what a cluster should have room for; nothing takes the wish back."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)


@contextmanager
def grown(
    config: Config,
    learners: int,
    actors: int,
    look: Callable[[], Mapping[str, float]] = ray.available_resources,
    ask: Callable[[list[dict[str, float]]], None] = ask_to_grow,
) -> Iterator[Room]:
    """Room on the cluster as it is, or as it has become after a while."""
    room = plan_room(config, learners, actors, look())
    if not config.cluster.wait_minutes:
        check_room(room, look())
        yield room
        return
    ask(room.bundles())
    try:
        yield _wait_for(room, look, time.monotonic() + 60 * config.cluster.wait_minutes)
    finally:
        ask([])


def _wait_for(room: Room, look: Callable[[], Mapping[str, float]], deadline: float) -> Room:
    while True:
        there_is = look()
        # Anew each time: machines with GPUs may have come, and then learners get some.
        room = plan_room(room.config, room.learners, room.actors, there_is)
        try:
            check_room(room, there_is)
            return room
        except ConfigError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(LOOK_SECONDS)


def plan_room(config: Config, learners: int, actors: int, there_is: Mapping[str, float]) -> Room:
    """Cores and GPUs for every process, whether there are enough or not."""
    share = _gpu_share(learners, actors, there_is.get("GPU", 0.0))
    learner, actor = config.cluster.gpus_per_learner, config.cluster.gpus_per_actor
    return Room(learners, actors, share if learner is None else learner, share if actor is None else actor, config)


def check_room(room: Room, there_is: Mapping[str, float]) -> None:
    """Raises where there is less than what was planned."""
    for kind in ("CPU", "GPU"):
        if room.needed(kind) > there_is.get(kind, 0.0):
            raise ConfigError(
                f"cluster: {room.learners} learners and {room.actors} actors need {room.needed(kind):g} {kind}s and "
                f"{there_is.get(kind, 0.0):g} are free; set --workers, cluster.actors or "
                f"cluster.{kind.lower()}s_per_learner, or cluster.wait_minutes where the cluster grows"
            )


def _gpu_share(learners: int, actors: int, gpus: float) -> float:
    """One each if there are enough. A learner alone may share; several may not, since they speak GPU to GPU."""
    processes = learners + actors
    if gpus >= processes or gpus == 0:
        return float(gpus > 0)
    return 1 / math.ceil(processes / gpus) if learners == 1 else 1.0
