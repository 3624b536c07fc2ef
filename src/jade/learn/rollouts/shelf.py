"""Where a learner lays its weights for processes beside it: memory that all of them have open.

On a GPU that is a block of the GPU's own memory, which the others open by a handle, so that weights never leave the
device. Elsewhere, and where such a handle opens nothing (processes that may not see each other, an allocator whose
blocks cannot be handed on), it is a file of memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from jade.errors import BackboneFailed
from jade.learn.policy import Policy

Layout = tuple[tuple[str, torch.Size], ...]
"""Names and shapes of the weights, as they stand one behind the other."""
Handle = tuple[Callable[..., Tensor], tuple[Any, ...]]
"""How another process opens a block of this one's memory."""
Place = Path | Handle


def share(flat_N: Tensor) -> Handle:
    """A handle for one other process; each needs its own."""
    rebuild, given = reduce_tensor(flat_N)
    return rebuild, given


def open_handle(handle: Handle) -> Tensor:
    rebuild, given = handle
    return rebuild(*given)


@dataclass
class Shelf:
    """The learner's end."""

    folder: Path
    dtype: torch.dtype
    device: torch.device
    """Whose memory it is; a processor's is a file in `folder`."""
    layout: Layout = ()
    flat_N: Tensor | None = None
    _told: set[int] = field(default_factory=set)

    def put(self, policy: Policy) -> None:
        named = [(name, weight.detach()) for name, weight in policy.sampler_weights()]
        self.layout = tuple((name, weight.shape) for name, weight in named)
        # Together first: one way from the device instead of hundreds.
        flat_N = torch.cat([weight.to(self.dtype).reshape(-1) for _, weight in named])
        self._room_for(len(flat_N)).copy_(flat_N)
        if self.device.type == "cuda":  # another process does not wait for what this one has only asked for
            torch.cuda.synchronize(self.device)

    def place_for(self, reader: int) -> Place | None:
        """Where the weights lie; nothing for a reader that was told before, and has it open."""
        if reader in self._told:
            return None
        self._told.add(reader)
        assert self.flat_N is not None, "nothing was put here"
        return self._file if self.device.type == "cpu" else share(self.flat_N)

    def take_name_away(self) -> None:
        """When all have it open: from then on the system gives the memory back however the learner ends."""
        if self.device.type == "cpu":
            with suppress(OSError):  # it has none any more, or keeps it here
                self._file.unlink()

    @property
    def _file(self) -> Path:
        return self.folder / "weights"

    def _room_for(self, size: int) -> Tensor:
        """Made when it is known how large, and kept: a new file would have to find all its pages again, which takes
        longer than to copy what is in them."""
        if self.flat_N is None or len(self.flat_N) != size:
            self._told.clear()  # what the readers have open is not this any more
            if self.device.type == "cpu":
                reserve(self._file, size * self.dtype.itemsize)
                self.flat_N = map_file(self._file, size, self.dtype)
            else:
                self.flat_N = torch.empty(size, dtype=self.dtype, device=self.device)
        return self.flat_N


@dataclass
class Reader:
    """The other process's end, which stays open."""

    flat_N: Tensor | None = None

    def read(self, place: Place | None, layout: Layout, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        sizes = [shape.numel() for _, shape in layout]
        if isinstance(place, Path):
            self.flat_N = map_file(place, sum(sizes), dtype)
        elif place is not None:
            self.flat_N = open_handle(place)
        assert self.flat_N is not None, "the first to ask says where"
        for (name, shape), part in zip(layout, self.flat_N.split(sizes), strict=True):
            yield name, part.view(shape)

    def done(self) -> None:
        """What was read is copied by now: the learner may write over it."""
        if self.flat_N is not None and self.flat_N.device.type == "cuda":
            torch.cuda.synchronize(self.flat_N.device)


def reserve(file: Path, num_bytes: int) -> None:
    """A file that has all of its pages, or one line: a page that is not there when it is written to ends the process
    without a word."""
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("ab") as opened:
        try:
            os.posix_fallocate(opened.fileno(), 0, num_bytes)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # else a system that knows no such thing
                raise BackboneFailed(
                    f"{file.parent.parent} has no room for the weights that processes beside the learner read "
                    f"({num_bytes / 1e9:.2g} GB); give it more (docker run --shm-size), or set learn.processes = 0 and "
                    "learn.ahead = false"
                ) from None


def map_file(file: Path, size: int, dtype: torch.dtype) -> Tensor:
    return torch.from_file(str(file), shared=True, size=size, dtype=dtype)
