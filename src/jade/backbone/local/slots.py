"""The memory of a running batch: keys and values, and the state of every request, in fixed tensors.

Slots 0 … n-1 are always the busy ones, so a decode step reads slices and never gathers. Everything a step reads or
writes lives here, at addresses that change only when the memory grows: that is what lets a step be captured as a graph.

S = slots, P = positions, K = key-value heads, D = head size, M = new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

IDLE_STATE: dict[str, tuple[torch.dtype, float]] = {
    "prompt_length": (torch.long, 1),
    "num_sampled": (torch.long, 0),
    "limit": (torch.long, 0),
    "last_token": (torch.long, 0),
    "seed": (torch.long, 0),
    "temperature": (torch.float32, 0),
    "top_p": (torch.float32, 1),
    "done": (torch.bool, True),
}
"""What is known of each slot, and its value while nobody is in it."""
GRAINS = (1, 128, 32)
"""Slots, positions and new tokens are reserved in multiples of these."""
MEMORY_SHARE = 0.6
"""Of the memory that is free, what growing keys and values may take (the old ones live until they are copied)."""

COPIED_AT_ONCE = 1 << 30
"""Bytes of keys and values that are copied between slots by one operation."""

Copy: TypeAlias = tuple[int, int, int]
"""From which slot to which, and how many positions."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a model's config says about its keys and values."""

    num_layers: int
    num_kv_heads: int
    head_size: int

    @classmethod
    def of(cls, config: Any) -> CacheShape:
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(config.num_hidden_layers, config.num_key_value_heads, head_size)


@dataclass(frozen=True, slots=True)
class Report:
    """What the host is told of the slots. On a GPU it is on its way until the event has passed."""

    done_S: Tensor
    num_sampled_S: Tensor
    token_SM: Tensor
    logp_SM: Tensor
    ready: Any

    def wait(self) -> None:
        if self.ready is not None:
            self.ready.synchronize()

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Done, counts, tokens and log-probs, once they are here; nothing is copied."""
        return tuple(field.numpy() for field in (self.done_S, self.num_sampled_S, self.token_SM, self.logp_SM))


class Slots:
    """Grows by what is asked for, or by half; `generation` counts the times its tensors moved."""

    def __init__(self, shape: CacheShape, device: torch.device, dtype: torch.dtype) -> None:
        self._shape, self._device, self._dtype = shape, device, dtype
        self.generation = 0
        self.num_slots = self.num_positions = self.num_new = 0
        self._allocate(*GRAINS)

    def reserve(self, num_slots: int, num_positions: int, num_new: int) -> None:
        """Make room; what the slots hold is kept."""
        wanted = (num_slots, num_positions, num_new)
        held = (self.num_slots, self.num_positions, self.num_new)
        if any(want > have for want, have in zip(wanted, held, strict=True)):
            self._allocate(*map(_grown, held, wanted, GRAINS))

    def release(self) -> bool:
        """Give back all but the least, and with it what the slots hold; False where there is nothing to give back."""
        if (self.num_slots, self.num_positions, self.num_new) == GRAINS:
            return False
        for name in ("kv", "token", "logp", *IDLE_STATE):
            delattr(self, name)
        self._allocate(*GRAINS)
        return True

    def fits(self, num_slots: int, num_positions: int) -> bool:
        """Whether memory can be had for this many; asked before a request is admitted beside others."""
        if num_slots <= self.num_slots and num_positions <= self.num_positions:
            return True
        slots = _grown(self.num_slots, num_slots, GRAINS[0])
        positions = _grown(self.num_positions, num_positions, GRAINS[1])
        shape = self._shape
        values = 2 * shape.num_layers * shape.num_kv_heads * shape.head_size * slots * positions
        return values * self._dtype.itemsize <= MEMORY_SHARE * free_memory(self._device)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Give the first keys and values of some slots to others; no slot is both a source and a target.

        Copies of about the same length are made by one operation, as long as the longest: an operation costs the host
        more than the copying costs a GPU. What is copied too much nobody reads before it is overwritten.
        """
        held = _in_words(self.kv)
        for part in _alike(copies, COPIED_AT_ONCE // (self.kv[:, :, 0, 0].numel() * self.kv.itemsize)):
            sources, targets, lengths = zip(*part, strict=True)
            source, target = sent(torch.tensor((sources, targets)), self._device)
            held[:, :, target, : max(lengths)] = held[:, :, source, : max(lengths)]

    def fill(self, groups: Sequence[tuple[Sequence[int], Tensor]]) -> None:
        """Begin the slots of each group with the same keys and values [layer, 2, position, K, D]."""
        if not groups:
            return
        every = sent(torch.tensor([slot for targets, _ in groups for slot in targets]), self._device)
        targets_of = every.split([len(targets) for targets, _ in groups])
        held = _in_words(self.kv)
        for target, (_, kv) in zip(targets_of, groups, strict=True):
            held[:, :, target, : kv.shape[2]] = _in_words(kv)[:, :, None]

    def move(self, sources: Sequence[int], targets: Sequence[int], num_positions: int) -> None:
        """Copy slots over others, all at once, and leave the old ones idle."""
        source = sent(torch.tensor(sources), self._device)
        target = sent(torch.tensor(targets), self._device)
        held = _in_words(self.kv)
        held[:, :, target, :num_positions] = held[:, :, source, :num_positions]
        for name in (*IDLE_STATE, "token", "logp"):
            field = getattr(self, name)
            field[target] = field[source]
        self.done[source] = True

    def report(self, num_slots: int) -> Report:
        """How the first slots stand after the work that has been asked for so far."""
        fields = (self.done, self.num_sampled, self.token, self.logp)
        done, counts, tokens, logps = (field[:num_slots].to("cpu", non_blocking=True, copy=True) for field in fields)
        # The copies are only asked for here: the event passes when they have been made.
        ready = torch.cuda.Event() if self.kv.is_cuda else None
        if ready:
            ready.record()
        return Report(done, counts, tokens, logps, ready)

    def _allocate(self, num_slots: int, num_positions: int, num_new: int) -> None:
        shape = self._shape
        sizes = (shape.num_layers, 2, num_slots, num_positions, shape.num_kv_heads, shape.head_size)
        # Zeros, not whatever was there: masked positions are multiplied by a weight of zero, and 0 * nan is nan.
        self._replace("kv", torch.zeros(sizes, dtype=self._dtype, device=self._device))
        self._replace("token", torch.zeros((num_slots, num_new), dtype=torch.long, device=self._device))
        self._replace("logp", torch.zeros((num_slots, num_new), device=self._device))
        for name, (dtype, value) in IDLE_STATE.items():
            self._replace(name, torch.full((num_slots,), value, dtype=dtype, device=self._device))
        self.num_slots, self.num_positions, self.num_new = num_slots, num_positions, num_new
        self.generation += 1

    def _replace(self, name: str, fresh: Tensor) -> None:
        old: Tensor | None = getattr(self, name, None)
        if old is not None:
            fresh[tuple(slice(size) for size in old.shape)] = old
        setattr(self, name, fresh)

    kv: Tensor
    """[layer, key or value, S, P, K, D]"""
    prompt_length: Tensor
    num_sampled: Tensor
    limit: Tensor
    last_token: Tensor
    seed: Tensor
    temperature: Tensor
    top_p: Tensor
    done: Tensor
    token: Tensor
    """[S, M]: what was sampled."""
    logp: Tensor
    """[S, M]: its log-probs."""


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, without waiting for what the device is doing."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def _alike(copies: Sequence[Copy], most_positions: int) -> Iterator[list[Copy]]:
    """Copies to be made as one, as long as the longest of them: not twice as long as any needs, and no more positions
    than given, since they stand in memory once more on their way."""
    part: list[Copy] = []
    for copy in sorted(copies, key=lambda copy: -copy[2]):
        longest = part[0][2] if part else 0
        if part and (2 * copy[2] < longest or (len(part) + 1) * longest > most_positions):
            yield part
            part = []
        part.append(copy)
    if part:
        yield part


def _in_words(kv: Tensor) -> Tensor:
    """The same memory in 8 bytes an element, if it can be: to copy by index takes as long as there are elements."""
    return kv.view(torch.long) if kv.shape[-1] * kv.itemsize % 8 == 0 else kv


def free_memory(device: torch.device) -> int:
    """Bytes this device can still give."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        # Not the pages that are free: those that are, and those the system would give up.
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # a platform that does not say
        return 8 << 30


def _grown(have: int, want: int, grain: int) -> int:
    """At least a half more than before, in whole grains, so that growing is rare and waste is small."""
    return have if want <= have else -(-max(want, have + have // 2) // grain) * grain
