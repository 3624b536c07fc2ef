"""What the fused layers' kernels are to compute, said in plain torch: stands in for them where there is no Triton."""

from __future__ import annotations

import torch
from torch import Tensor


def add_norm(x_TH: Tensor, delta_TH: Tensor | None, gain_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    sum_TH = x_TH if delta_TH is None else x_TH + delta_TH
    return sum_TH, torch.nn.functional.rms_norm(sum_TH, gain_H.shape, gain_H, eps)


def norm_back(
    grad_TH: Tensor, x_TH: Tensor, gain_H: Tensor, past_TH: Tensor, eps: float, *, with_gain: bool
) -> tuple[Tensor, Tensor | None]:
    spread_T1 = (x_TH.square().mean(1, keepdim=True) + eps).rsqrt()
    normed_TH, above_TH = x_TH * spread_T1, grad_TH * gain_H
    along_T1 = (above_TH * normed_TH).mean(1, keepdim=True)
    out_TH = past_TH + spread_T1 * (above_TH - normed_TH * along_T1)
    return out_TH, (grad_TH * normed_TH).sum(0) if with_gain else None


def gated(both_TF: Tensor) -> Tensor:
    gate_TF, up_TF = both_TF.chunk(2, 1)
    return torch.nn.functional.silu(gate_TF) * up_TF


def gated_back(grad_TF: Tensor, both_TF: Tensor) -> tuple[Tensor, Tensor]:
    gate_TF, up_TF = both_TF.chunk(2, 1)
    open_TF = gate_TF.sigmoid()
    gate_grad_TF = grad_TF * up_TF * open_TF * (1 + gate_TF * (1 - open_TF))
    return torch.cat([gate_grad_TF, grad_TF * gate_TF * open_TF], 1), gated(both_TF)


def turn(
    heads_TXD: Tensor,
    cos_TE: Tensor,
    sin_TE: Tensor,
    place_S: Tensor | None,
    num_turned: int,
    out_SXD: Tensor,
    way: float,
) -> None:
    turned_TXD = torch.cat([_turned(heads_TXD[:, :num_turned], cos_TE, way * sin_TE), heads_TXD[:, num_turned:]], 1)
    out_SXD.copy_(turned_TXD if place_S is None else turned_TXD[place_S])


def collect(
    key_grad_SKD: Tensor,
    value_grad_SKD: Tensor,
    cos_TE: Tensor,
    sin_TE: Tensor,
    calls: tuple[Tensor, Tensor] | None,
    out_TXD: Tensor,
) -> None:
    num_keys = key_grad_SKD.shape[1]
    token_S = torch.arange(len(out_TXD), device=out_TXD.device)
    if calls is not None:
        order_S, end_T = calls
        token_S = torch.empty_like(order_S)
        token_S[order_S] = torch.arange(len(end_T), device=end_T.device).repeat_interleave(
            end_T.diff(prepend=end_T.new_zeros(1))
        )
    out_TXD.zero_().index_add_(0, token_S, torch.cat([key_grad_SKD, value_grad_SKD], 1))
    out_TXD[:, :num_keys] = _turned(out_TXD[:, :num_keys], cos_TE, -sin_TE)


def _turned(heads_TXD: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    one, two = heads_TXD.chunk(2, -1)
    cos, sin = cos_TE[:, None], sin_TE[:, None]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)
