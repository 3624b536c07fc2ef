"""The same layers in fewer kernels: a small model's update waits for memory and for launches, not for arithmetic.

A norm is one kernel and keeps the width of the stream. An adapter is added to the weight that it adapts, once for all
tokens, instead of to every token's output; those are also the weights that the sampler speaks with. Queries, keys and
values are one product, and are turned by their positions without copies. Layers that cannot be shown to be of the
known kind stay as they are.

Shapes: T = tokens, H = hidden width, R, I and O = an adapter's rank, a layer's inputs and outputs, A and K = query and
key-value heads, X = all heads of a product, D = head width, E = half of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from jade.errors import ConfigError
from jade.learn.batches import make_batch
from jade.learn.layers.attention import MASKED, Packing, attend

ADAPTER = "default"


def make_lean(trunk: nn.Module) -> None:
    """Change the layers in place. The last norm stays: what it rounds would be seen in every log-probability."""
    parts = [part for layer in getattr(trunk, "layers", ()) for part in layer.modules()]
    for part in parts:
        if _is_root_mean_square(part):
            part.__class__ = LeanNorm
        elif _is_plain_adapter(part):
            part.__class__ = _lean_kind(LeanAdapter, type(part))  # type: ignore[arg-type]
    for part in parts:
        if _is_plain_attention(part):
            part.__class__ = _lean_kind(LeanAttention, type(part))  # type: ignore[arg-type]


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

    @property
    def whole_weight(self) -> Tensor:
        down_RI, up_OR = (cast(nn.Linear, half[ADAPTER]).weight for half in (self.lora_A, self.lora_B))
        weight_OI, scale = self.base_layer.weight, self.scaling[ADAPTER]
        with torch.autocast(up_OR.device.type, enabled=False):
            whole_OI: Tensor = _Merge.apply(weight_OI, up_OR, down_RI, scale)  # type: ignore[no-untyped-call]
        return whole_OI

    @property
    def bias(self) -> Tensor | None:
        return self.base_layer.bias

    def forward(self, x: Tensor, *unused: Any, **also_unused: Any) -> Tensor:
        return functional.linear(x, self.whole_weight, self.bias)


class _Merge(torch.autograd.Function):
    """weight + scale up down, of which the weight is frozen; the scale costs no kernel on the way back either."""

    @staticmethod
    def forward(ctx: Any, weight_OI: Tensor, up_OR: Tensor, down_RI: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(up_OR, down_RI)
        ctx.scale = scale
        return torch.addmm(weight_OI, up_OR, down_RI, alpha=scale)

    @staticmethod
    def backward(ctx: Any, grad_OI: Tensor) -> tuple[None, Tensor, Tensor, None]:
        up_OR, down_RI = ctx.saved_tensors
        up_grad_OR = torch.addmm(up_OR, grad_OI, down_RI.T, beta=0, alpha=ctx.scale)
        down_grad_RI = torch.addmm(down_RI, up_OR.T, grad_OI, beta=0, alpha=ctx.scale)
        return None, up_grad_OR, down_grad_RI, None


class LeanAttention(nn.Module):
    """Attention of the usual kind: rotary positions, perhaps fewer heads for keys and values."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear
    head_dim: int
    scaling: float

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        jade_packing: Packing,
        attention_mask: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, None]:
        """As transformers calls it; shapes are [1, T, H] in and out."""
        if attention_mask is not None:
            raise ConfigError(MASKED)
        inputs = (self.q_proj, self.k_proj, self.v_proj)
        weight_OI = torch.cat([_weight_of(layer) for layer in inputs])
        bias_O = None if self.q_proj.bias is None else torch.cat([layer.bias for layer in inputs])
        heads_TXD = functional.linear(hidden_states[0], weight_OI, bias_O).unflatten(-1, (-1, self.head_dim))
        num_keys = self.k_proj.out_features // self.head_dim
        turned_TXD = _Turn.apply(heads_TXD[:, :-num_keys], *_halves(position_embeddings))  # type: ignore[no-untyped-call]
        query_TAD, key_TKD = turned_TXD[:, :-num_keys], turned_TXD[:, -num_keys:]
        out_TAD = attend(query_TAD, key_TKD, heads_TXD[:, -num_keys:], jade_packing, self.scaling)
        return self.o_proj(out_TAD.flatten(1)[None]), None


class _Turn(torch.autograd.Function):
    """Each head's two halves, turned by the position's angles. The way back is the turn the other way round."""

    @staticmethod
    def forward(ctx: Any, heads_TXD: Tensor, cos_T1E: Tensor, sin_T1E: Tensor) -> Tensor:
        ctx.save_for_backward(cos_T1E, sin_T1E)
        return _turned(heads_TXD, cos_T1E, sin_T1E, 1.0)

    @staticmethod
    def backward(ctx: Any, grad_TXD: Tensor) -> tuple[Tensor, None, None]:
        cos_T1E, sin_T1E = ctx.saved_tensors
        return _turned(grad_TXD, cos_T1E, sin_T1E, -1.0), None, None


def _turned(heads_TXD: Tensor, cos_T1E: Tensor, sin_T1E: Tensor, way: float) -> Tensor:
    out_TXD = torch.empty_like(heads_TXD, memory_format=torch.contiguous_format)
    (one, two), (out_one, out_two) = (tensor.chunk(2, -1) for tensor in (heads_TXD, out_TXD))
    torch.mul(one, cos_T1E, out=out_one).addcmul_(two, sin_T1E, value=-way)
    torch.mul(two, cos_T1E, out=out_two).addcmul_(one, sin_T1E, value=way)
    return out_TXD


def _halves(position_embeddings: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, which transformers gives twice over, once for each half."""
    cos_TE, sin_TE = (both[0].chunk(2, -1)[0] for both in position_embeddings)
    return cos_TE[:, None], sin_TE[:, None]


def _weight_of(layer: nn.Module) -> Tensor:
    weight = layer.whole_weight if isinstance(layer, LeanAdapter) else layer.weight
    return cast(Tensor, weight)


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
def _lean_kind(lean: type[nn.Module], kind: type[nn.Module]) -> type[nn.Module]:
    """A layer's own class, which others ask for weights and files, with the lean way forward."""
    return type(lean.__name__, (lean, kind), {})


@torch.no_grad()
def _is_plain_attention(module: Any) -> bool:
    """Whether attention is of the known kind: of four projections and nothing else, and giving the same result."""
    if {name for name, _ in module.named_children()} != {"q_proj", "k_proj", "v_proj", "o_proj"}:
        return False
    linear = (nn.Linear, LeanAdapter)
    if not all(isinstance(child, linear) for child in module.children()) or not hasattr(module, "scaling"):
        return False
    if getattr(module.config, "sliding_window", None) is not None:
        return False
    device = module.o_proj.weight.device
    batch = make_batch([_Probe((1, 2), (3,)), _Probe((1,), (2,))], (0, 1)).to(device)
    width = module.q_proj.in_features
    # Two calls in one row, so that a layer which does not heed their bounds is found out.
    hidden_1TH = torch.linspace(-1, 1, 5 * width, device=device).view(5, width).sin()[None]
    angle_1TD = torch.linspace(0, 3, 5 * module.head_dim // 2, device=device).view(1, 5, -1).repeat(1, 1, 2)
    turn, packing = (angle_1TD.cos(), angle_1TD.sin()), Packing.of(batch)
    usual, _ = module(hidden_1TH, position_embeddings=turn, attention_mask=None, jade_packing=packing)
    lean, _ = LeanAttention.forward(module, hidden_1TH, turn, packing)
    return torch.allclose(usual, lean, rtol=1e-3, atol=1e-5)


@dataclass(frozen=True, slots=True)
class _Probe:
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]


def _is_plain_adapter(module: Any) -> bool:
    if not hasattr(module, "lora_A"):
        return False
    from peft.tuners.lora import Linear

    return (
        type(module) is Linear
        and type(module.base_layer) is nn.Linear
        and not module.base_layer.weight.requires_grad
        and list(module.lora_A) == [ADAPTER]
        and not module.lora_variant
        and not module.fan_in_fan_out
        and not module.lora_bias[ADAPTER]
        and isinstance(module.lora_dropout[ADAPTER], nn.Identity)
    )
