"""Where a local model would run here, in words."""

from __future__ import annotations

import torch

from jade.backbone.local.backbone import pick_device, pick_dtype
from jade.config import BackboneConfig


def describe_place(config: BackboneConfig) -> str:
    """The device of a config, what it has, and the precision of weights on it."""
    device = pick_device(config.device)
    precision = str(pick_dtype(config.dtype, device)).removeprefix("torch.")
    if device.type != "cuda":
        build = "" if torch.version.cuda else " (a build without CUDA)"
        return f"on the CPU{build}, {config.threads or torch.get_num_threads()} threads, {precision}"
    card = torch.cuda.get_device_properties(device)
    return f"on {card.name}, {card.total_memory / 2**30:.0f} GiB, {precision}"
