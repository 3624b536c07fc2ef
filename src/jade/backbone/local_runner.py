"""Runs a transformers model over slots: a prefill admits requests, a decode step advances every busy slot by a token.

The decode step is a function of tensors at fixed addresses, so on a GPU the same code is captured once for each batch
shape and replayed. Requests are told apart by rows alone; who they are is the engine's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jade.backbone.local_adapters import AdapterSet
from jade.backbone.local_attention import ATTENTION, DecodeLayout, Layout, PackedLayout, PrefillLayout, Span
from jade.backbone.local_cpu import CpuDecoder, can_run_on_cpu
from jade.backbone.local_fused import FusedDecoder, can_fuse
from jade.backbone.local_graphs import DecodeGraphs, PrefillGraphs, row_bucket
from jade.backbone.local_packing import pack, packed_rows
from jade.backbone.local_sampling import Draw, draw_tokens, seed_word, uniforms
from jade.backbone.local_slots import CacheShape, Slots, sent
from jade.errors import ConfigError
from jade.types import Sampling


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that enters a slot. The first `num_cached` positions of the slot are filled already; or, where another
    admission of the same moment has the same prompt, all of them are filled from that one's slot."""

    slot: int
    prompt_ids: Sequence[int]
    num_cached: int
    limit: int
    sampling: Sampling
    twin: int | None = None


class Runner:
    """A model, ready to work on slots."""

    def __init__(self, model: Any, eos_ids: Iterable[int], fuse: bool = True, capture_prefill: bool = False) -> None:
        _require_plain_attention(model.config)
        model.set_attn_implementation(ATTENTION)
        self.model = model.eval()
        self.device: torch.device = model.device
        self.eos_ids = tuple(sorted(eos_ids))
        self._eos = torch.tensor(self.eos_ids or (-1,), device=self.device)
        # transformers passes a four-dimensional mask on as it is; this one only keeps it from building another.
        self._no_mask = torch.empty(1, 1, 1, 1, device=self.device)
        self._graphs = DecodeGraphs() if self.device.type == "cuda" else None
        self._prefills = PrefillGraphs() if self.device.type == "cuda" and capture_prefill else None
        self._fused = _fused(model) if fuse else None
        self.adapters = AdapterSet(model)
        self.vocabulary_size = int(model.get_output_embeddings().weight.shape[0])
        self.max_positions = int(model.config.max_position_embeddings)

    def new_slots(self) -> Slots:
        return Slots(CacheShape.of(self.model.config), self.device, self.model.dtype)

    def num_rows(self, num_jobs: int) -> int:
        """The rows that a step for so many jobs really has."""
        return num_jobs if self._graphs is None else row_bucket(num_jobs)

    @property
    def _is_fused(self) -> bool:
        return self._fused is not None and self.adapters.active is None

    @torch.inference_mode()
    def prefill(self, slots: Slots, admitted: Sequence[Admission], allowed_BV: Tensor | None = None) -> None:
        """Read the prompts, and sample the first token of each."""
        spans, ids = packed_rows({one.slot: (one.prompt_ids, one.num_cached) for one in admitted if one.twin is None})
        ends = {span.slot: span.stop - 1 for span in spans}
        last = [ends[one.slot if one.twin is None else one.twin] for one in admitted]
        slot_B = _enter(slots, admitted)
        logits_BV = self._read(slots, spans, ids, last)
        _copy_to_twins(slots, admitted)
        self._record(slots, slot_B, logits_BV, draw_for([one.sampling for one in admitted]), allowed_BV)

    def _read(self, slots: Slots, spans: Sequence[Span], ids: array[int], last: Sequence[int]) -> Tensor:
        """The logits after the prompts."""
        if self.device.type != "cuda" or slots.kv.dtype == torch.float32:
            ids_N = sent(torch.frombuffer(ids, dtype=torch.long), self.device)
            return self._logits(ids_N, PrefillLayout(slots.kv, spans), sent(torch.tensor(last), self.device))
        prefills = self._prefills if self._is_fused else None
        packed = pack(spans, ids, last, slots.num_positions, padded=prefills is not None)

        def work(tensors: Sequence[Tensor]) -> Tensor:
            row_3N, bounds_3B, last_R = tensors
            return self._logits(row_3N[0], PackedLayout(slots.kv, row_3N, bounds_3B, packed.max_q), last_R)

        if prefills:
            return prefills.replay(slots, packed.tensors(), work)[: len(last)]
        return work([sent(tensor, self.device) for tensor in packed.tensors()])

    @torch.inference_mode()
    def decode(
        self, slots: Slots, num_rows: int, num_positions: int, how: Draw, allowed_BV: Tensor | None = None
    ) -> None:
        """Sample one more token for each of the first `num_rows` slots that is not done."""
        if self._graphs is None or allowed_BV is not None:
            return self._decode(slots, num_rows, num_positions, how, allowed_BV)
        rows, positions = self._graphs.shape(slots, num_rows, num_positions)
        if self._is_fused:  # its kernels look at each row's own length and temperature: one capture serves all
            positions, how = slots.num_positions, Draw.NUCLEUS if how is Draw.NUCLEUS else Draw.FULL
        self._graphs.replay(slots, (rows, positions, how), lambda: self._decode(slots, rows, positions, how, None))

    def _decode(self, slots: Slots, num_rows: int, num_positions: int, how: Draw, allowed_BV: Tensor | None) -> None:
        # The newest sampled token is not in the keys yet: it stands right behind what is.
        position_B = slots.prompt_length[:num_rows] + slots.num_sampled[:num_rows] - 1
        layout = DecodeLayout(slots.kv, position_B.clamp(min=0), num_positions, slots.done)
        logits_BV = self._logits(slots.last_token[:num_rows], layout)
        self._record(slots, layout.slot_N, logits_BV, how, allowed_BV)

    def _logits(self, ids_N: Tensor, layout: Layout, keep: Tensor | None = None) -> Tensor:
        """Of the tokens that are to be kept, or of all."""
        if self._fused is not None and self._is_fused:
            return self._fused.logits(ids_N, layout, keep)
        out = self.model(
            input_ids=ids_N[None],
            position_ids=layout.position_N[None],
            attention_mask=self._no_mask,
            use_cache=False,
            logits_to_keep=0 if keep is None else keep,
            jade_layout=layout,
        )
        logits: Tensor = out.logits[0]
        return logits

    def _record(self, slots: Slots, row_B: Tensor, logits_BV: Tensor, how: Draw, allowed_BV: Tensor | None) -> None:
        """Draw, and write down what was drawn; rows that are done stay as they are."""
        drawn_at_once = how is not Draw.NUCLEUS and allowed_BV is None
        if self._fused and self._fused.draw_and_record and drawn_at_once:
            return self._fused.draw_and_record(logits_BV, row_B, slots, self._eos)
        logits_BV = logits_BV.float()
        if allowed_BV is not None:
            logits_BV = logits_BV.masked_fill(~allowed_BV, -torch.inf)
        step_B, alive_B = slots.num_sampled[row_B], ~slots.done[row_B]
        uniform_B = uniforms(slots.seed[row_B], step_B)
        token_B, logp_B = draw_tokens(logits_BV, slots.temperature[row_B], slots.top_p[row_B], uniform_B, how)
        column_B = step_B.clamp(max=slots.num_new - 1)
        slots.token[row_B, column_B] = torch.where(alive_B, token_B, slots.token[row_B, column_B])
        slots.logp[row_B, column_B] = torch.where(alive_B, logp_B, slots.logp[row_B, column_B])
        slots.last_token[row_B] = torch.where(alive_B, token_B, slots.last_token[row_B])
        slots.num_sampled[row_B] = step_B + alive_B
        ended_B = (token_B[:, None] == self._eos).any(dim=1) | (step_B + 1 >= slots.limit[row_B])
        slots.done[row_B] |= ended_B


def _fused(model: Any) -> FusedDecoder | CpuDecoder | None:
    """The model in fewer operations than its own layers take, where it is of a known kind."""
    if can_run_on_cpu(model):
        return CpuDecoder(model)
    return FusedDecoder(model) if can_fuse(model) else None


def draw_for(samplings: Iterable[Sampling]) -> Draw:
    """The cheapest way of drawing that serves all of these."""
    all_of_them = list(samplings)
    drawn = [sampling for sampling in all_of_them if sampling.temperature > 0]
    if not drawn:
        return Draw.GREEDY
    if any(sampling.top_p < 1 for sampling in drawn):
        return Draw.NUCLEUS
    return Draw.FULL if len(drawn) == len(all_of_them) else Draw.MIXED


def _enter(slots: Slots, admitted: Sequence[Admission]) -> Tensor:
    """Set the slots' state, field by field for all requests at once; the slots."""
    samplings = [one.sampling for one in admitted]
    words = [
        [one.slot for one in admitted],
        [len(one.prompt_ids) for one in admitted],
        [one.limit for one in admitted],
        [seed_word(sampling.seed) for sampling in samplings],
    ]
    numbers = [[sampling.temperature for sampling in samplings], [sampling.top_p for sampling in samplings]]
    slot_B: Tensor
    slot_B, *whole = sent(torch.tensor(words), slots.kv.device)
    fresh = dict(zip(("prompt_length", "limit", "seed"), whole, strict=True))
    fresh |= zip(("temperature", "top_p"), sent(torch.tensor(numbers), slots.kv.device), strict=True)
    for name, value_B in fresh.items():
        getattr(slots, name)[slot_B] = value_B
    slots.num_sampled.index_fill_(0, slot_B, 0)
    slots.done.index_fill_(0, slot_B, False)
    return slot_B


def _copy_to_twins(slots: Slots, admitted: Sequence[Admission]) -> None:
    groups: dict[int, list[Admission]] = {}
    for one in admitted:
        if one.twin is not None:
            groups.setdefault(one.twin, []).append(one)
    for source, twins in groups.items():
        slots.copy(source, [twin.slot for twin in twins], len(twins[0].prompt_ids))


def _require_plain_attention(config: Any) -> None:
    windowed = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if windowed or kinds != {"full_attention"}:
        raise ConfigError(
            f"model type {config.model_type!r} uses sliding-window or other special attention; "
            "serve it with an OpenAI-compatible server and give its URL instead"
        )
