"""How busy the GPU is while an iteration runs, by the driver's own count: the share of the time with work on it.

All processes on that GPU count. Where there is no driver to ask, nothing is said.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean

import torch

LIBRARY = "libnvidia-ml.so.1"
SECONDS = 0.2
"""Between two looks; the driver's own count is of about that time."""

Reader = Callable[[], float | None]
"""Gives nothing where the driver has nothing to say just now."""


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Watch:
    """Looks at a GPU again and again, in a thread of its own."""

    def __init__(self, read: Reader | None, seconds: float = SECONDS) -> None:
        self._read = read
        self._seconds = seconds
        self._seen: list[float] = []

    @classmethod
    def on(cls, device: torch.device) -> Watch:
        return cls(open_reader(device))

    @contextmanager
    def watching(self) -> Iterator[None]:
        if self._read is None:
            yield
            return
        self._seen = []
        ended = threading.Event()
        thread = threading.Thread(target=self._look, args=(self._read, ended), name="jade-gpu-busy", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def figures(self) -> dict[str, float]:
        """The share of the time that was last watched, where anything was seen."""
        return {"gpu_busy": fmean(self._seen)} if self._seen else {}

    def _look(self, read: Reader, ended: threading.Event) -> None:
        while not ended.wait(self._seconds):
            if (share := read()) is not None:
                self._seen.append(share)


def open_reader(device: torch.device) -> Reader | None:
    """What tells the share (0 to 1) of one GPU, chosen by its name of its own: numbers differ between libraries."""
    if device.type != "cuda":
        return None
    try:
        library = ctypes.CDLL(LIBRARY)
        handle = ctypes.c_void_p()
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
            return None
    except (OSError, AttributeError):  # no driver here, or one that does not know these names
        return None

    def read() -> float | None:
        found = _Utilisation()
        failed = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(found))
        return None if failed else float(found.gpu) / 100

    return read
