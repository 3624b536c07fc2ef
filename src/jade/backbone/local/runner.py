"""Runs a transformers model over slots: a prefill admits requests, a decode step advances every busy slot by a token.

The decode step is a function of tensors at fixed addresses, so on a GPU the same code is captured once for each batch
shape and replayed. Requests are told apart by rows alone; who they are is the engine's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from jade.backbone.local.adapters import AdapterSet
from jade.backbone.local.attention import ATTENTION, DecodeLayout, Layout, PackedLayout, PrefillLayout
from jade.backbone.local.cpu import CpuDecoder, can_run_on_cpu
from jade.backbone.local.fused import FusedDecoder, can_fuse
from jade.backbone.local.graphs import DecodeGraphs, PrefillGraphs, row_bucket
from jade.backbone.local.packing import Admission, Sheet, pack, spans_of
from jade.backbone.local.sampling import Draw, draw_tokens, uniforms
from jade.backbone.local.slots import CacheShape, Slots, sent
from jade.errors import ConfigError
from jade.types import Sampling


class Runner:
    """A model, ready to work on slots."""

    def __init__(self, model: Any, eos_ids: Iterable[int], fuse: bool = True, capture_prefill: bool = True) -> None:
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

    def is_oversized(self, num_rows: int, num_jobs: int) -> bool:
        """Whether jobs should be moved together before the next step, of whose rows only so many would be busy. Fused
        kernels pass idle rows by, and moving takes as long as some steps: with them it must save half of the rows."""
        if self._graphs is None:
            return num_rows > num_jobs
        rows, fewest = row_bucket(num_rows), row_bucket(num_jobs)
        return rows >= 2 * fewest if self._is_fused else rows > fewest

    @property
    def _is_fused(self) -> bool:
        return self._fused is not None and self.adapters.active is None

    @torch.inference_mode()
    def prefill(self, slots: Slots, admitted: Sequence[Admission], allowed_BV: Tensor | None = None) -> None:
        """Read the prompts, and sample the first token of each."""
        slot_B, logits_BV = self._read(slots, admitted)
        copy_to_twins(slots, admitted)
        self._record(slots, slot_B, logits_BV, draw_for([one.sampling for one in admitted]), allowed_BV)

    def _read(self, slots: Slots, admitted: Sequence[Admission]) -> tuple[Tensor, Tensor]:
        """Tell the slots of their requests and read the prompts; the slots, and the logits after the prompts."""
        if self._prefills and self._is_fused and isinstance(self._fused, FusedDecoder):
            return self._read_captured(self._prefills, self._fused, slots, admitted)
        words, shape = pack(admitted, slots.num_positions, padded=False)
        sheet = Sheet.of(sent(torch.from_numpy(words), self.device), shape)
        _enter(slots, sheet)
        layout: Layout
        if self.device.type != "cuda" or slots.kv.dtype == torch.float32:
            layout = PrefillLayout(slots.kv, spans_of(admitted))
        else:
            layout = PackedLayout(slots.kv, sheet.row_3N, sheet.bounds_3C)
        return sheet.slot_R, self._logits(sheet.row_3N[0], layout, sheet.last_R)

    def _read_captured(
        self, prefills: PrefillGraphs, fused: FusedDecoder, slots: Slots, admitted: Sequence[Admission]
    ) -> tuple[Tensor, Tensor]:
        words, shape = pack(admitted, slots.num_positions)

        def work(words: Tensor) -> Tensor:
            sheet = Sheet.of(words, shape)
            _enter(slots, sheet)
            layout = PackedLayout(slots.kv, sheet.row_3N, sheet.bounds_3C)
            return fused.states(sheet.row_3N[0], layout, sheet.last_R)

        held, state_RE = prefills.replay(slots, torch.from_numpy(words), shape, work)
        real = slice(len(admitted))
        # The head stays outside, so that no graph keeps logits, which are as wide as the vocabulary.
        return held[real], fused.head(state_RE[real])  # the words begin with the slots

    def give_up_captures(self) -> None:
        """Give back the memory that only makes the reading of prompts quicker."""
        if self._prefills:
            self._prefills.give_up()

    def resume_captures(self) -> None:
        if self._prefills:
            self._prefills.resume()

    @torch.inference_mode()
    def decode(
        self,
        slots: Slots,
        num_rows: int,
        num_positions: int,
        how: Draw,
        allowed_BV: Tensor | None = None,
        num_steps: int = 1,
    ) -> None:
        """Sample so many more tokens for each of the first `num_rows` slots that is not done, or as many as it lacks.
        The first of them sees `num_positions` at most, each that follows one more."""
        if self._graphs is not None and self._is_fused and allowed_BV is None:
            self._decode_at_once(self._graphs, slots, num_rows, how, num_steps)
            return
        for step in range(num_steps):
            self._decode_once(slots, num_rows, min(num_positions + step, slots.num_positions), how, allowed_BV)

    def _decode_at_once(self, graphs: DecodeGraphs, slots: Slots, num_rows: int, how: Draw, num_steps: int) -> None:
        """All the steps as one captured graph. Fused kernels look up each row's length and temperature themselves, so
        that one capture serves every batch of its size. A launch lets go of the interpreter's lock and must wait to get
        it back: the fewer there are the better."""
        rows, positions = graphs.shape(slots, num_rows, slots.num_positions)
        how = Draw.NUCLEUS if how is Draw.NUCLEUS else Draw.FULL

        def work() -> None:
            for _ in range(num_steps):
                self._decode(slots, rows, positions, how, None)

        graphs.replay(slots, (rows, positions, how, num_steps), work)

    def _decode_once(
        self, slots: Slots, num_rows: int, num_positions: int, how: Draw, allowed_BV: Tensor | None
    ) -> None:
        if self._graphs is None or allowed_BV is not None:
            return self._decode(slots, num_rows, num_positions, how, allowed_BV)
        rows, positions = self._graphs.shape(slots, num_rows, num_positions)
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
        # Everything from here on is of fixed shapes and without a branch on values: it may be captured as a graph.
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


def _enter(slots: Slots, sheet: Sheet) -> None:
    """Set the slots' state, field by field for all requests at once."""
    for name, value_R in sheet.state.items():
        getattr(slots, name)[sheet.slot_R] = value_R
    slots.num_sampled.index_fill_(0, sheet.slot_R, 0)
    slots.done.index_fill_(0, sheet.slot_R, False)


def copy_to_twins(slots: Slots, admitted: Sequence[Admission]) -> None:
    slots.copy([(one.twin, one.slot, one.num_tokens) for one in admitted if one.twin is not None])


def _require_plain_attention(config: Any) -> None:
    windowed = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    fault = "uses sliding-window or other special attention" if windowed or kinds != {"full_attention"} else ""
    if not hasattr(config, "num_key_value_heads"):
        fault = "is not built as Llama, Qwen2 and their like are"
    if fault:
        raise ConfigError(
            f"model type {config.model_type!r} {fault}; serve it with an OpenAI-compatible server and give its URL "
            "instead"
        )
