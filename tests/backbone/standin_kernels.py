"""What the GPU's kernels and graphs say they do, done plainly on a CPU: so that all that leads to them can be tested
without one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from jade.backbone.local.backbone import LocalBackbone
from jade.backbone.local.fused import FusedDecoder
from jade.backbone.local.graphs import Captures, PrefillGraphs
from jade.backbone.local.slots import Slots


def plain_flash(
    q_NHD: Tensor,
    k_MKD: Tensor,
    v_MKD: Tensor,
    ends_q: Tensor,
    starts_k: Tensor,
    max_q: int,
    max_k: int,
    *options: object,
    scale: float,
    seqused_k: Tensor,
) -> tuple[Tensor]:
    """Rows of several lengths, causal masks aligned at their ends; tokens of no row come out as they happen to."""
    out_NHD = torch.full_like(q_NHD, torch.nan)
    for number, seen in enumerate(seqused_k.tolist()):
        start, stop = ends_q[number : number + 2].tolist()
        first = int(starts_k[number])
        assert stop - start <= max_q
        assert seen <= max_k
        if start == stop:
            continue
        q, k, v = (
            rows[None].transpose(1, 2)
            for rows in (q_NHD[start:stop], k_MKD[first : first + seen], v_MKD[first : first + seen])
        )
        mask = torch.ones(stop - start, seen, dtype=torch.bool).tril(seen - (stop - start))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)
        out_NHD[start:stop] = out[0].transpose(0, 1)
    return (out_NHD,)


def attend_prompts(q_NHD: Tensor, kv_2SPKD: Tensor, bounds_3C: Tensor, piece: int, scale: float) -> Tensor:
    ends_q, starts_k, seen = bounds_3C
    keys, values = kv_2SPKD.flatten(1, 2)
    (out_NHD,) = plain_flash(q_NHD, keys, values, ends_q, starts_k, piece, 10**6, scale=scale, seqused_k=seen[:-1])
    return out_NHD


def add_norm(x_NE: Tensor, delta_NE: Tensor | None, weight_E: Tensor, eps: float) -> Tensor:
    if delta_NE is not None:
        x_NE += delta_NE
    return x_NE * torch.rsqrt(x_NE.square().mean(-1, keepdim=True) + eps) * weight_E


def gated(both_NF: Tensor) -> Tensor:
    gate, value = both_NF.chunk(2, dim=-1)
    opened: Tensor = torch.nn.functional.silu(gate) * value
    return opened


def turn_and_store(
    qkv_NX: Tensor, cos_PD: Tensor, sin_PD: Tensor, kv_2SPKD: Tensor, slot_N: Tensor, position_N: Tensor, num_heads: int
) -> Tensor:
    num_kv, size = kv_2SPKD.shape[3:]
    q, k, v = qkv_NX.unflatten(1, (-1, size)).split([num_heads, num_kv, num_kv], dim=1)
    cos_ND, sin_ND = cos_PD[position_N], sin_PD[position_N]
    turned: list[Tensor] = []
    for rows in (q, k):
        one, two = rows.chunk(2, dim=-1)
        turned.append(rows * cos_ND[:, None] + torch.cat((-two, one), dim=-1) * sin_ND[:, None])
    real = slot_N >= 0
    for side, rows in zip(kv_2SPKD, (turned[1], v), strict=True):
        side[slot_N[real], position_N[real]] = rows[real]
    return turned[0]


def attend_one(
    qkv_BX: Tensor,
    cos_PD: Tensor,
    sin_PD: Tensor,
    kv_2SPKD: Tensor,
    position_B: Tensor,
    done_S: Tensor,
    num_heads: int,
    scale: float,
) -> Tensor:
    num = len(qkv_BX)
    slot_B = torch.arange(num).masked_fill(done_S[:num], -1)
    q_BHD = turn_and_store(qkv_BX, cos_PD, sin_PD, kv_2SPKD, slot_B, position_B, num_heads)
    seen = position_B.masked_fill(done_S[:num], 0).int() + 1
    bounds_3C = torch.zeros(3, num + 1, dtype=torch.int32)
    bounds_3C[0] = torch.arange(num + 1)
    bounds_3C[1, :-1] = torch.arange(num) * kv_2SPKD.shape[2]
    bounds_3C[2, :-1] = seen
    return attend_prompts(q_BHD, kv_2SPKD, bounds_3C, 1, scale)


class Recording:
    """A graph: the work again, its result where the first one was."""

    def __init__(self, work: Callable[[], tuple[Tensor, Tensor]], result: Tensor) -> None:
        self._work, self._result = work, result
        self.num_replays = 0

    def replay(self) -> None:
        self.num_replays += 1
        self._result.copy_(self._work()[1])


def capture(captures: Captures[Any], slots: Slots, shape: Hashable, work: Callable[[], tuple[Tensor, Tensor]]) -> None:
    held, result = work()
    captures._held[id(slots), slots.generation, shape] = Recording(work, result), (held, result)


def read_as_on_a_gpu(backbone: LocalBackbone, monkeypatch: pytest.MonkeyPatch) -> PrefillGraphs:
    """Make a backbone on the CPU read its prompts by (stand-ins of) the GPU's kernels and graphs."""
    kernels = SimpleNamespace(add_norm=add_norm, gated=gated, turn_and_store=turn_and_store, draw_and_record=None)
    seeing = SimpleNamespace(attend_prompts=attend_prompts, attend_one=attend_one)
    for name, standins in (("kernels", kernels), ("attention_kernels", seeing)):
        monkeypatch.setitem(sys.modules, f"jade.backbone.local.{name}", standins)  # type: ignore[arg-type,unused-ignore]
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 1))
    monkeypatch.setattr(Captures, "capture", capture)
    runner: Any = backbone._runner
    runner._fused = FusedDecoder(runner.model)
    runner._prefills = PrefillGraphs()
    prefills: PrefillGraphs = runner._prefills
    return prefills


def num_replays(prefills: PrefillGraphs) -> int:
    return sum(graph.num_replays for graph, _ in prefills._captures._held.values())
