"""The same layers in fewer kernels: a small model's update waits for memory, not for arithmetic.

A norm is one kernel and keeps the width of the stream. An adapter is added to the weight that it adapts, once for all
tokens, instead of to every token's output; those are also the weights that the sampler speaks with. Layers that cannot
be shown to be of the known kind stay as they are.

Shapes: T = tokens, H = hidden width, I and O = a layer's inputs and outputs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

ADAPTER = "default"


def make_lean(trunk: nn.Module) -> None:
    """Change the layers in place. The last norm stays: what it rounds would be seen in every log-probability."""
    for layer in getattr(trunk, "layers", ()):
        for module in layer.modules():
            if _is_root_mean_square(module):
                module.__class__ = LeanNorm
            elif _is_plain_adapter(module):
                module.__class__ = _lean_kind_of(type(module))  # type: ignore[arg-type]


class LeanNorm(nn.Module):
    """Root-mean-square norm, the sums in float32, the result as wide as what came in."""

    weight: nn.Parameter
    variance_epsilon: float

    def forward(self, hidden_TH: Tensor) -> Tensor:
        with torch.autocast(hidden_TH.device.type, enabled=False):
            weight_H = self.weight.to(hidden_TH.dtype)
            return functional.rms_norm(hidden_TH, weight_H.shape, weight_H, self.variance_epsilon)


class LeanAdapter(nn.Module):
    """A linear layer with its low-rank adapter added to the weight."""

    base_layer: nn.Linear
    lora_A: nn.ModuleDict
    lora_B: nn.ModuleDict
    scaling: dict[str, float]

    def forward(self, x: Tensor, *unused: Any, **also_unused: Any) -> Tensor:
        down_RI, up_OR = (cast(nn.Linear, half[ADAPTER]).weight for half in (self.lora_A, self.lora_B))
        with torch.autocast(x.device.type, enabled=False):
            weight_OI = torch.addmm(self.base_layer.weight, up_OR, down_RI, alpha=self.scaling[ADAPTER])
        return functional.linear(x, weight_OI, self.base_layer.bias)


@torch.no_grad()
def _is_root_mean_square(module: nn.Module) -> bool:
    """Whether a norm is what its name says: some multiply by one plus the weight, or keep more digits."""
    if not (type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")):
        return False
    weight_H = module.weight
    if not isinstance(weight_H, Tensor) or weight_H.ndim != 1:
        return False
    probe_TH = torch.linspace(-2, 2, 2 * len(weight_H), device=weight_H.device).view(2, -1)
    lean_TH = functional.rms_norm(probe_TH, weight_H.shape, weight_H, module.variance_epsilon)  # type: ignore[arg-type]
    return torch.allclose(module(probe_TH), lean_TH, rtol=1e-4, atol=1e-5)


@lru_cache
def _lean_kind_of(kind: type[nn.Module]) -> type[nn.Module]:
    """The adapter's own class, which is asked for merged weights and files, with the lean way forward."""
    return type("LeanAdapter", (LeanAdapter, kind), {})


def _is_plain_adapter(module: Any) -> bool:
    if not hasattr(module, "lora_A"):
        return False
    from peft.tuners.lora import Linear

    return (
        type(module) is Linear
        and type(module.base_layer) is nn.Linear
        and list(module.lora_A) == [ADAPTER]
        and not module.lora_variant
        and not module.fan_in_fan_out
        and not module.lora_bias[ADAPTER]
        and isinstance(module.lora_dropout[ADAPTER], nn.Identity)
    )
