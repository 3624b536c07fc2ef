"""What the fused layers' kernels are to compute, said in plain torch: stands in for them where there is no Triton."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from jade.learn.layers.tiles import Tiles

LOG_2 = log(2)


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
) -> None:
    turned_TXD = torch.cat([_turned(heads_TXD[:, :num_turned], cos_TE, sin_TE), heads_TXD[:, num_turned:]], 1)
    out_SXD.copy_(turned_TXD if place_S is None else turned_TXD[place_S])


def collect(
    key_grad_SKD: Tensor,
    value_grad_SKD: Tensor,
    cos_TE: Tensor,
    sin_TE: Tensor,
    token_U: Tensor,
    calls: tuple[Tensor, Tensor],
    out_TXD: Tensor,
) -> None:
    num_keys = key_grad_SKD.shape[1]
    order_S, end_T = calls
    token_S = torch.empty_like(order_S)
    token_S[order_S] = torch.arange(len(end_T), device=end_T.device).repeat_interleave(
        end_T.diff(prepend=end_T.new_zeros(1))
    )
    sum_TXD = torch.zeros_like(out_TXD).index_add_(0, token_S, torch.cat([key_grad_SKD, value_grad_SKD], 1))
    sum_TXD[:, :num_keys] = _turned(sum_TXD[:, :num_keys], cos_TE, -sin_TE)
    out_TXD[token_U] = sum_TXD[token_U]


def attend(
    heads_TAD: Tensor, key_SKD: Tensor, value_SKD: Tensor, angles: tuple[Tensor, Tensor], tiles: Tiles, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    query_TAD = _turned(heads_TAD, *angles)
    out_TAD = torch.empty_like(query_TAD)
    log_sum_KTG = query_TAD.new_empty(key_SKD.shape[1], len(query_TAD), tiles.group, dtype=torch.float32)
    for call in _calls(tiles):
        score_AQS = _scores(query_TAD[call.queries], key_SKD[call.keys], call.before, scale)
        log_sum_AQ = torch.logsumexp(score_AQS, 2) / LOG_2
        log_sum_KTG[:, call.queries] = log_sum_AQ.unflatten(0, (-1, tiles.group)).transpose(1, 2)
        value_SAD = _spread(value_SKD[call.keys], tiles.group)
        out_TAD[call.queries] = torch.einsum("aqs,sad->qad", score_AQS.softmax(2), value_SAD)
    return out_TAD, log_sum_KTG, query_TAD


def attend_back(
    grad_TAD: Tensor,
    query_TAD: Tensor,
    key_SKD: Tensor,
    value_SKD: Tensor,
    out_TAD: Tensor,
    log_sum_KTG: Tensor,
    query_angles: tuple[Tensor, Tensor],
    key_angles: tuple[Tensor, Tensor],
    tiles: Tiles,
    scale: float,
    query_into_TAD: Tensor,
    others_into_TXD: Tensor,
) -> tuple[Tensor, Tensor]:
    """As the kernels do it, but that all gradients at keys and values are given."""
    grads = key_SKD.new_empty(key_SKD.shape), value_SKD.new_empty(value_SKD.shape)
    for call in _calls(tiles):
        query_QAD, grad_QAD = query_TAD[call.queries].float(), grad_TAD[call.queries].float()
        key_SAD, value_SAD = (_spread(one_SKD[call.keys], tiles.group) for one_SKD in (key_SKD, value_SKD))
        log_sum_AQ = log_sum_KTG[:, call.queries].transpose(1, 2).flatten(0, 1)
        score_AQS = _scores(query_QAD, key_SKD[call.keys], call.before, scale)
        weight_AQS = (score_AQS - LOG_2 * log_sum_AQ[:, :, None]).exp()
        along_AQ1 = (grad_QAD * out_TAD[call.queries].float()).sum(2).T[:, :, None]
        score_grad_AQS = weight_AQS * (torch.einsum("qad,sad->aqs", grad_QAD, value_SAD) - along_AQ1) * scale
        query_grad_QAD = torch.einsum("aqs,sad->qad", score_grad_AQS, key_SAD)
        cos_QE, sin_QE = (one[call.queries] for one in query_angles)
        query_into_TAD[call.queries] = _turned(query_grad_QAD, cos_QE, -sin_QE)
        key_grad_SKD = _gathered(torch.einsum("aqs,qad->sad", score_grad_AQS, query_QAD), tiles.group)
        value_grad_SKD = _gathered(torch.einsum("aqs,qad->sad", weight_AQS, grad_QAD), tiles.group)
        grads[0][call.keys], grads[1][call.keys] = key_grad_SKD, value_grad_SKD
        own = slice(call.origin + call.alone, call.origin + len(key_grad_SKD))
        cos_QE, sin_QE = (one[own] for one in key_angles)
        key_grad_SKD = _turned(key_grad_SKD[call.alone :], cos_QE, -sin_QE)
        others_into_TXD[own] = torch.cat([key_grad_SKD, value_grad_SKD[call.alone :]], 1)
    return grads


def add_low_rank(grad_TO: Tensor, low_TN: Tensor, input_TI: Tensor | None, above_TN: Tensor, sum_PWN: Tensor) -> None:
    num_outputs = grad_TO.shape[1]
    sum_PWN[0, :num_outputs] += grad_TO.float().T @ low_TN.float()
    if input_TI is not None:
        sum_PWN[0, num_outputs:] += input_TI.float().T @ above_TN.float()


def gated_back_learning(grad_TF: Tensor, both_TF: Tensor, above_TN: Tensor, sum_PWN: Tensor) -> Tensor:
    out_TF, again_TF = gated_back(grad_TF, both_TF)
    sum_PWN[0, -again_TF.shape[1] :] += again_TF.float().T @ above_TN.float()
    return out_TF


class _Call(NamedTuple):
    """Where queries and keys of a call stand, how many keys come before the first query's own, the first key that no
    other call sees, and where in the row the first key's token would stand."""

    queries: slice
    keys: slice
    before: int
    alone: int
    origin: int


def _calls(tiles: Tiles) -> Iterator[_Call]:
    for start, num_queries, at, num_keys, alone, before, origin in tiles.calls_CI.tolist():
        yield _Call(slice(start, start + num_queries), slice(at, at + num_keys), before, min(alone, num_keys), origin)


def _scores(query_QAD: Tensor, key_SKD: Tensor, before: int, scale: float) -> Tensor:
    """Of each query and key of a call; a query sees the keys up to its own."""
    key_SAD = _spread(key_SKD, query_QAD.shape[1] // key_SKD.shape[1])
    score_AQS = torch.einsum("qad,sad->aqs", query_QAD.float(), key_SAD) * scale
    seen_QS = torch.ones(score_AQS.shape[1:], dtype=torch.bool, device=key_SKD.device).tril(before)
    return score_AQS.masked_fill(~seen_QS, float("-inf"))


def _spread(one_SKD: Tensor, group: int) -> Tensor:
    """A key head for each of its query heads."""
    return one_SKD.float().repeat_interleave(group, 1)


def _gathered(grad_SAD: Tensor, group: int) -> Tensor:
    grad_SKGD: Tensor = grad_SAD.unflatten(1, (-1, group))
    return grad_SKGD.sum(2)


def _turned(heads_TXD: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    one, two = heads_TXD.chunk(2, -1)
    cos, sin = cos_TE[:, None], sin_TE[:, None]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)
