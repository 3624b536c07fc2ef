"""Checkpoints: everything a run needs to go on as if it had never stopped.

A checkpoint is a folder of safetensors and JSON, written beside its place and renamed into it, and renamed out of it
before it is removed, so that it is there whole or not at all. Nothing is pickled. All draws of a run follow from its
seed and the iteration, so the streams of random numbers, the order of the data and the place in it are one number: the
iterations done. Of several processes the first writes, what it finds on the disk holds for all, and a run may go on
with another number of them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from jade.errors import TrainingStopped
from jade.learn.policy import Policy
from jade.learn.ranks import agree, is_first
from jade.learn.shards import like, put, whole

SCHEMA = 1
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
WEIGHTS_FILE, MOMENTS_FILE, STATE_FILE = FILES = ("policy.safetensors", "optimiser.safetensors", "state.json")
PARTIAL, GONE = HIDDEN = (".partial-", ".gone-")
"""Before the names of folders that are being written or removed: whoever lists checkpoints does not see them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, apart from its weights."""

    iteration: int = 0
    """Iterations (or, in a warm start, optimiser steps) done."""
    scale: float = 1.0
    """What the guard has left of the step size."""
    strikes: int = 0
    """Rollbacks since the run last got past a point where it had failed."""
    failed_at: int = -1
    recent: tuple[dict[str, float], ...] = ()
    """What the guard remembers."""
    best: float | None = None
    best_iteration: int = -1
    journal_bytes: int = 0
    """Length of the journal at this point; what was written after it is written again."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one run."""

    folder: Path
    keep: int = 2

    def save(self, policy: Policy, optimiser: torch.optim.Optimizer, progress: Progress) -> Path:
        """Write a checkpoint, then forget the oldest."""
        place = self.place(progress.iteration)
        # In all processes, though the first alone writes: what is sharded is put together by all of them.
        weights, moments = _weights(policy), _moments(policy, optimiser)
        if is_first():
            self._write(place, weights, moments, progress)
        agree(None)  # nobody goes on before it is there
        return place

    def _write(
        self, place: Path, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor], progress: Progress
    ) -> None:
        self._clear()
        partial = self.folder / f"{PARTIAL}{place.name}"
        partial.mkdir(parents=True)
        save_file(dict(weights), partial / WEIGHTS_FILE)
        save_file(dict(moments), partial / MOMENTS_FILE)
        (partial / STATE_FILE).write_text(json.dumps({"schema": SCHEMA, **asdict(progress)}, indent=1))
        _settle(partial)
        if place.exists():
            # The same point reached again after a rollback: the older one makes way.
            self._remove(place)
        os.replace(partial, place)
        _sync(self.folder)
        self._forget()

    def load(self, place: Path, policy: Policy, optimiser: torch.optim.Optimizer | None) -> Progress:
        """Bring policy and optimiser back to where they were."""
        progress = read_progress(place)
        load_weights(place, policy)
        if optimiser is not None:
            _restore_moments(policy, optimiser, load_file(place / MOMENTS_FILE, policy.device.type))
        return progress

    def place(self, iteration: int) -> Path:
        return self.folder / f"step-{iteration:06d}"

    def all(self) -> list[Path]:
        """Whole checkpoints, oldest first."""
        places = self.folder.glob("step-*")
        return sorted(place for place in places if all((place / name).is_file() for name in FILES))

    def newest(self, before: int | None = None) -> Path | None:
        """The newest one, or the newest from before an iteration; the oldest where none is that old."""
        places = agree(self.all())
        older = [place for place in places if before is None or iteration_of(place) < before]
        return older[-1] if older else next(iter(places), None)

    def drop_after(self, iteration: int) -> None:
        """Forget what came after a rollback's goal."""
        for place in self.all() if is_first() else ():
            if iteration_of(place) > iteration:
                self._remove(place)
        agree(None)

    def _forget(self) -> None:
        """All but the last few, and what was the best at each of these: a rollback may go back to any of them."""
        places = self.all()
        older, last = places[: -self.keep], places[-self.keep :]
        best = {read_progress(place).best_iteration for place in last}
        for place in older:
            if iteration_of(place) not in best:
                self._remove(place)

    def _remove(self, place: Path) -> None:
        """Out of the list at once, then file by file off the disk: a run may be killed at any of them."""
        gone = self.folder / f"{GONE}{place.name}"
        # One that was left there by a run that was killed: a folder cannot be renamed over another that holds files.
        shutil.rmtree(gone, ignore_errors=True)
        os.replace(place, gone)
        _sync(self.folder)
        shutil.rmtree(gone)

    def _clear(self) -> None:
        """What a run that was killed has left half written or half removed."""
        for prefix in HIDDEN:
            for left in self.folder.glob(f"{prefix}*"):
                shutil.rmtree(left)


def iteration_of(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def read_progress(place: Path) -> Progress:
    try:
        data: dict[str, Any] = json.loads((place / STATE_FILE).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise TrainingStopped(f"checkpoint {place} cannot be read: {error}; remove it to use an older one") from None
    if data.pop("schema", None) != SCHEMA:
        raise TrainingStopped(f"checkpoint {place} was written by another version of jade")
    return Progress(**data | {"recent": tuple(data["recent"])})


def load_weights(place: Path, policy: Policy) -> None:
    """The trained weights of a checkpoint, into a policy of the same shape."""
    saved = load_file(place / WEIGHTS_FILE, policy.device.type)
    own = dict(trained_parameters(policy))
    if saved.keys() != own.keys():
        odd = min(saved.keys() ^ own.keys())
        raise TrainingStopped(f"checkpoint {place} does not fit this policy: it differs in {odd}; check learn.policy")
    for name, weight in own.items():
        put(saved[name], weight)


def trained_parameters(policy: Policy) -> Iterator[tuple[str, nn.Parameter]]:
    yield from policy.policy_parameters()
    yield from policy.critic_parameters()


def _weights(policy: Policy) -> dict[str, Tensor]:
    return {name: _kept(weight) for name, weight in trained_parameters(policy)}


def _moments(policy: Policy, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory by parameter name; empty before its first step."""
    return {
        f"{moment}/{name}": _kept(optimiser.state[weight][moment])
        for name, weight in trained_parameters(policy)
        for moment in MOMENTS
        if weight in optimiser.state
    }


def _kept(tensor: Tensor) -> Tensor:
    """What is written of a tensor: all of it where something is written at all."""
    together = whole(tensor.detach())
    return together.contiguous() if is_first() else together.new_empty(0)


def _restore_moments(policy: Policy, optimiser: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    optimiser.state.clear()
    for name, weight in trained_parameters(policy):
        if f"step/{name}" in saved:
            optimiser.state[weight] = {m: _as_held(m, saved[f"{m}/{name}"].clone(), weight) for m in MOMENTS}


def _as_held(moment: str, values: Tensor, weight: Tensor) -> Tensor:
    """Means are sharded as their weight is; the number of steps is one number for all."""
    return values if moment == "step" else like(values, weight)


def _settle(folder: Path) -> None:
    """Have everything on the disk before the rename makes it count."""
    for path in (*folder.iterdir(), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
