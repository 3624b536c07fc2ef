"""Time between moments of a device's work."""

import time

import torch

from jade.learn.monitor.moment import Moment


def test_on_a_processor_it_is_the_clock_s() -> None:
    device = torch.device("cpu")
    before, first = time.perf_counter(), Moment(device)
    time.sleep(0.02)
    second = Moment(device)
    assert 0.02 <= first.until(second) <= time.perf_counter() - before
    assert second.until(first) < 0
