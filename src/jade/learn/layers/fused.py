"""A decoder of the Llama family that learns, in a fraction of the launches.

A small model's update waits for launches and for memory, not for arithmetic. Here its layers are written out
(`layer.py`), and their weights are made once for all pieces of a step. What it says and teaches is what the lean layers
say and teach, but for rounding. Layers of another kind stay as they are, and so does all of this on a CPU.

Shapes: T = tokens of the row, N = its action tokens, Q = those that the last layer is asked for, C = calls; H = hidden
width, E = half a head's width.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from jade.backbone.local.fused import is_known_kind
from jade.learn.batches import Batch, send
from jade.learn.layers.layer import Layer, Layers, Shape
from jade.learn.layers.lean import LeanAdapter, LeanAttention, LeanNorm
from jade.learn.layers.merged import GAINS, PRODUCTS, Merged, Stack
from jade.learn.layers.row import Queries, Row
from jade.learn.layers.tiles import count_up, plan_tiles

DEVICES = ("cuda",)
"""Where this is worth it."""


class FusedTrunk:
    """The layers of a trunk, run on packed rows."""

    def __init__(self, trunk: Any, stack: Stack) -> None:
        self.trunk = trunk
        self._stack = stack
        self._shape = Shape.of(trunk.layers[0])
        self._holds = False
        self._merged: Merged | None = None

    @classmethod
    def of(cls, trunk: Any) -> FusedTrunk | None:
        """None where the layers cannot be shown to be of the known kind, all of them alike."""
        if not (is_known_kind(trunk.config) and all(map(_is_known, trunk.layers))):
            return None
        stack = Stack.of(list(trunk.layers)) if len({Shape.of(layer) for layer in trunk.layers}) == 1 else None
        return None if stack is None else cls(trunk, stack)

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """While the parameters stay what they are: their weights are made once, and their gradients come at the end."""
        self._holds = True
        try:
            yield
            if self._merged is not None:
                self._merged.give_back()
        finally:
            self._holds, self._merged = False, None

    def states(self, batch: Batch) -> Tensor:
        """The states from which the action tokens are predicted."""
        trunk, merged = self.trunk, self._weights(batch.id_T.device)
        stream_TH = trunk.get_input_embeddings()(batch.id_T).to(_dtype_on(batch.id_T.device))
        row = self._row(batch, stream_TH)
        # Adapters learn although nothing that comes in does.
        anchor = torch.empty(0, device=stream_TH.device, requires_grad=torch.is_grad_enabled() and merged.learns)
        kernels = load_kernels()
        whose = [*[row.everyone] * (len(trunk.layers) - 1), row.asked]
        layers = [Layer(kernels, merged, at, self._shape, row, queries) for at, queries in enumerate(whose)]
        sum_NH = Layers.apply(anchor, stream_TH, row.place_N, layers)  # type: ignore[no-untyped-call]
        state_NH: Tensor = trunk.norm(sum_NH)
        return state_NH

    def _weights(self, device: torch.device) -> Merged:
        if self._merged is not None:
            return self._merged
        merged = Merged(self._stack, _dtype_on(device), held=self._holds)
        if self._holds:
            self._merged = merged
        return merged

    @torch.no_grad()
    def _row(self, batch: Batch, stream_TH: Tensor) -> Row:
        device, group = stream_TH.device, self._shape.num_heads // self._shape.num_keys
        both = self.trunk.rotary_emb(stream_TH[None], position_ids=batch.position_T[None])
        cos_TE, sin_TE = (whole[0, :, : self._shape.size // 2].contiguous() for whole in both)
        first_C, behind_C = np.array(batch.asked).T
        token_Q = send(torch.from_numpy(count_up(first_C, behind_C - first_C)), device)
        number_T = torch.zeros_like(batch.id_T)
        number_T[token_Q] = torch.arange(len(token_Q), device=device)
        bounds = batch.bounds, batch.whole_bounds
        everyone = Queries(plan_tiles(*bounds, group, device), (cos_TE, sin_TE))
        some = plan_tiles(*bounds, group, device, asked=batch.asked)
        asked = Queries(some, (cos_TE.index_select(0, token_Q), sin_TE.index_select(0, token_Q)), token_Q)
        return Row(everyone, asked, batch.place_S, number_T[batch.state_N])


def _is_known(layer: Any) -> bool:
    """Whether a layer is: norm, attention, norm, gated SiLU; all that it holds lean already."""
    children = {name for name, _ in layer.named_children()}
    if children != {"self_attn", "mlp", *GAINS.values()} or not isinstance(layer.self_attn, LeanAttention):
        return False
    if not all(isinstance(layer.get_submodule(path), LeanNorm) for path in GAINS.values()):
        return False
    if {name for name, _ in layer.mlp.named_children()} - {"act_fn"} != {"gate_proj", "up_proj", "down_proj"}:
        return False
    products = (layer.get_submodule(path) for paths in PRODUCTS.values() for path in paths)
    return all(type(one) is nn.Linear or isinstance(one, LeanAdapter) for one in products)


def can_fuse(device: torch.device) -> bool:
    return device.type in DEVICES and (device.type != "cuda" or importlib.util.find_spec("triton") is not None)


def load_kernels() -> ModuleType:
    """Not before they are needed: Triton is not everywhere."""
    from jade.learn.layers import kernels

    return kernels


def _dtype_on(device: torch.device) -> torch.dtype:
    """The width of products and of the stream that the layers add to."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
