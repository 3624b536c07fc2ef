from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace

import pytest
import torch

from jade.learn.monitor import busy
from jade.learn.monitor.busy import Watch, open_reader

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class FakeDriver:
    """Knows one GPU, which is as busy as it is told."""

    def __init__(self, percent: int | None, known: str = "GPU-abc") -> None:
        self.percent, self.known = percent, known

    def nvmlInit_v2(self) -> int:  # the driver's own name
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: object) -> int:
        return 0 if name.decode() == self.known else 6

    def nvmlDeviceGetUtilizationRates(self, handle: object, found: object) -> int:
        if self.percent is None:
            return 999
        ctypes.cast(found, ctypes.POINTER(busy._Utilisation)).contents.gpu = self.percent  # type: ignore[arg-type]
        return 0


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))


@pytest.mark.usefixtures("a_gpu")
def test_the_driver_is_asked_for_the_gpu_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(73))
    read = open_reader(GPU)
    assert read is not None
    assert read() == 0.73


@pytest.mark.usefixtures("a_gpu")
def test_a_look_that_fails_is_not_taken_for_an_idle_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(None))
    read = open_reader(GPU)
    assert read is not None
    looked = threading.Semaphore(0)

    def counted() -> float | None:
        looked.release()
        return read()

    watch = Watch(counted, seconds=0.001)
    with watch.watching():
        looked.acquire()
    assert watch.figures() == {}


@pytest.mark.usefixtures("a_gpu")
def test_a_gpu_that_the_driver_does_not_know_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(73, known="GPU-other"))
    assert open_reader(GPU) is None


def test_without_a_driver_or_a_gpu_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    for device in (CPU, GPU):
        watch = Watch.on(device)
        with watch.watching():
            pass
        assert watch.figures() == {}


def test_the_share_is_the_mean_of_what_was_seen_and_each_time_begins_anew() -> None:
    looks = iter([1.0, 0.5, 0.25, 0.25, *[0.0] * 10**6])
    seen = threading.Semaphore(0)

    def read() -> float:
        seen.release()
        return next(looks)

    watch = Watch(read, seconds=0.001)
    with watch.watching():
        seen.acquire()
    first = watch.figures()["gpu_busy"]
    assert 0.0 < first <= 1.0
    with watch.watching():
        for _ in range(400):
            seen.acquire()
    assert watch.figures()["gpu_busy"] < 0.01


def test_the_thread_ends_with_what_it_watched() -> None:
    with pytest.raises(ZeroDivisionError), Watch(lambda: 1.0, seconds=0.001).watching():
        _ = 1 / 0
    assert not [thread for thread in threading.enumerate() if thread.name == "jade-gpu-busy"]
