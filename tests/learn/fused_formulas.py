"""What the fused layers' kernels are to compute, said in plain torch: stands in for them where there is no Triton."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import log

import torch
from torch import Tensor

from jade.learn.tiles import Tiles

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
    for queries, keys in _calls(tiles):
        score_AQS = _scores(query_TAD[queries], key_SKD[keys], scale)
        log_sum_AQ = torch.logsumexp(score_AQS, 2) / LOG_2
        log_sum_KTG[:, queries] = log_sum_AQ.unflatten(0, (-1, tiles.group)).transpose(1, 2)
        out_TAD[queries] = torch.einsum("aqs,sad->qad", score_AQS.softmax(2), _spread(value_SKD[keys], tiles.group))
    return out_TAD, log_sum_KTG, query_TAD


def attend_back(
    grad_TAD: Tensor,
    query_TAD: Tensor,
    key_SKD: Tensor,
    value_SKD: Tensor,
    out_TAD: Tensor,
    log_sum_KTG: Tensor,
    angles: tuple[Tensor, Tensor],
    tiles: Tiles,
    scale: float,
    into_TXD: Tensor,
) -> tuple[Tensor, Tensor]:
    """As the kernels do it, but that all gradients at keys and values are given."""
    grads = key_SKD.new_empty(key_SKD.shape), value_SKD.new_empty(value_SKD.shape)
    for queries, keys in _calls(tiles):
        query_QAD, grad_QAD = query_TAD[queries].float(), grad_TAD[queries].float()
        key_SAD, value_SAD = (_spread(one_SKD[keys], tiles.group) for one_SKD in (key_SKD, value_SKD))
        log_sum_AQ = log_sum_KTG[:, queries].transpose(1, 2).flatten(0, 1)
        weight_AQS = (_scores(query_QAD, key_SKD[keys], scale) - LOG_2 * log_sum_AQ[:, :, None]).exp()
        along_AQ1 = (grad_QAD * out_TAD[queries].float()).sum(2).T[:, :, None]
        score_grad_AQS = weight_AQS * (torch.einsum("qad,sad->aqs", grad_QAD, value_SAD) - along_AQ1) * scale
        query_grad_QAD = torch.einsum("aqs,sad->qad", score_grad_AQS, key_SAD)
        grads[0][keys] = _gathered(torch.einsum("aqs,qad->sad", score_grad_AQS, query_QAD), tiles.group)
        grads[1][keys] = _gathered(torch.einsum("aqs,qad->sad", weight_AQS, grad_QAD), tiles.group)
        # Tokens of a call that others see are written again, by whoever adds up what these make of them.
        own = slice(keys.stop - len(query_QAD), keys.stop)
        cos_QE, sin_QE = (one[queries] for one in angles)
        turned = (_turned(one, cos_QE, -sin_QE) for one in (query_grad_QAD, grads[0][own]))
        into_TXD[queries] = torch.cat([*turned, grads[1][own]], 1)
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


def _calls(tiles: Tiles) -> Iterator[tuple[slice, slice]]:
    """Where the queries and the keys of each call stand."""
    for queries, keys in zip(pairwise(tiles.bounds), pairwise(tiles.whole_bounds), strict=True):
        yield slice(*queries), slice(*keys)


def _scores(query_QAD: Tensor, key_SKD: Tensor, scale: float) -> Tensor:
    """Of each query and key of a call; the last query sees all keys, the one before it all but the last, and so on."""
    key_SAD = _spread(key_SKD, query_QAD.shape[1] // key_SKD.shape[1])
    score_AQS = torch.einsum("qad,sad->aqs", query_QAD.float(), key_SAD) * scale
    num_queries, num_keys = score_AQS.shape[1:]
    seen_QS = torch.ones(num_queries, num_keys, dtype=torch.bool, device=key_SKD.device).tril(num_keys - num_queries)
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
