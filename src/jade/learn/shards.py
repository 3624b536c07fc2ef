"""Weights spread over the processes of a run (FSDP2), and put together again. In a single process nothing happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from jade.learn.ranks import num_ranks

if TYPE_CHECKING:
    from jade.learn.policy import Policy


def shard(policy: Policy) -> None:
    """Spread a policy's weights over the processes; each layer is whole only while it works."""
    if num_ranks() == 1:
        return
    for trunk in (policy.trunk, policy.critic):
        for layer in _layers(trunk):
            fully_shard(layer)
    # The rest stays whole from the forward to the end of the backward pass: the vocabulary is used at both ends.
    fully_shard(policy)


def _layers(trunk: nn.Module | None) -> list[nn.Module]:
    layers = getattr(trunk, "layers", None)
    return list(layers) if isinstance(layers, nn.ModuleList) else []


def rest(policy: Policy) -> None:
    """Let go of what a forward pass without a backward one has left whole: weights are read and written in shards."""
    if isinstance(policy, FSDPModule):
        policy.reshard()


def add_up(tensor: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if num_ranks() > 1:
        dist.all_reduce(tensor)
    return tensor


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor put together, in all processes; any other as it is."""
    if not isinstance(tensor, DTensor):
        return tensor
    full: Tensor = tensor.full_tensor()
    return full


def like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A whole tensor that all processes hold, sharded as the pattern is."""
    if not isinstance(pattern, DTensor):
        return tensor
    # Everyone has read the same file: each keeps its part and nothing is sent.
    return distribute_tensor(tensor, pattern.device_mesh, pattern.placements, src_data_rank=None)


@torch.no_grad()
def put(values: Tensor, into: Tensor) -> None:
    """Overwrite a tensor, sharded or not, with a whole one."""
    into.copy_(like(values, into))
