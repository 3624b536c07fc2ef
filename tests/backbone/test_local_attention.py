"""Slots, prefixes and packed rows give the logits of the plain model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from backbone_builders import make_model
from standin_kernels import plain_flash
from transformers import GPT2Config, GPT2LMHeadModel

from jade.backbone.local import slots as local_slots
from jade.backbone.local.attention import PIECE, DecodeLayout, Layout, PackedLayout, PrefillLayout, Span
from jade.backbone.local.fused import angles_of, turns_by_length
from jade.backbone.local.job import as_words
from jade.backbone.local.packing import Admission, Sheet, pack
from jade.backbone.local.runner import Runner
from jade.backbone.local.slots import CacheShape, Slots
from jade.errors import ConfigError
from jade.types import Sampling

KINDS = ("llama", "qwen2")
CPU = torch.device("cpu")


def plain_logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


def slot_logits(model: Any, ids: list[int], layout: Layout) -> torch.Tensor:
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([ids]),
            position_ids=layout.position_N[None],
            attention_mask=torch.empty(1, 1, 1, 1),
            use_cache=False,
            jade_layout=layout,
        )
    logits: torch.Tensor = out.logits[0]
    return logits


def make_pair(kind: str) -> tuple[Any, Any, Slots]:
    """The same weights twice: as transformers made them, and ready for slots; with slots that hold old rubbish."""
    plain, ours = make_model(kind), make_model(kind)
    Runner(ours, {2})
    slots = Slots(CacheShape.of(ours.config), CPU, torch.float32)
    slots.reserve(6, 64, 8)
    slots.kv.normal_()
    return plain, ours, slots


def make_ids(num: int, seed: int) -> list[int]:
    return torch.randint(3, 300, (num,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_several_prompts_in_one_row_have_the_logits_of_each_alone(kind: str) -> None:
    plain, ours, slots = make_pair(kind)
    prompts = [make_ids(length, length) for length in (5, 17, 1, 30)]
    spans, start = [], 0
    for slot, ids in zip((4, 0, 2, 1), prompts, strict=True):
        spans.append(Span(slot, start, start + len(ids), 0))
        start += len(ids)
    logits = slot_logits(ours, [token for ids in prompts for token in ids], PrefillLayout(slots.kv, spans))
    for span, ids in zip(spans, prompts, strict=True):
        torch.testing.assert_close(logits[span.start : span.stop], plain_logits(plain, ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_a_cached_prefix_has_the_logits_of_the_whole_prompt(kind: str) -> None:
    plain, ours, slots = make_pair(kind)
    ids = make_ids(25, 7)
    slot_logits(ours, ids[:11], PrefillLayout(slots.kv, [Span(3, 0, 11, 0)]))
    slots.kv[:, :, 1, :11] = slots.kv[:, :, 3, :11]
    logits = slot_logits(ours, ids[11:], PrefillLayout(slots.kv, [Span(1, 0, 14, 11)]))
    torch.testing.assert_close(logits, plain_logits(plain, ids)[11:], atol=1e-4, rtol=0)


def test_prompts_cut_into_pieces_have_the_logits_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter than a piece, a whole one, and several; after cached prefixes and without."""
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", plain_flash)
    plain, ours, slots = make_pair("llama")
    slots.reserve(6, 4 * PIECE, 8)
    sizes = {4: (5, 0), 0: (PIECE, 0), 2: (3 * PIECE + 7, 30), 1: (PIECE + 1, PIECE), 3: (2 * PIECE + 40, 40)}
    prompts = {slot: (make_ids(size, slot), cached) for slot, (size, cached) in sizes.items()}
    for slot, (ids, cached) in prompts.items():
        if cached:
            slot_logits(ours, ids[:cached], PrefillLayout(slots.kv, [Span(slot, 0, cached, 0)]))
    admitted = [Admission(slot, as_words(ids), cached, 9, Sampling()) for slot, (ids, cached) in prompts.items()]
    words, shape = pack(admitted, slots.num_positions, padded=False)
    sheet = Sheet.of(torch.from_numpy(words), shape)
    logits = slot_logits(ours, sheet.row_3N[0].tolist(), PackedLayout(slots.kv, sheet.row_3N, sheet.bounds_3C))
    for last, (ids, _) in zip(sheet.last_R, prompts.values(), strict=True):
        torch.testing.assert_close(logits[last], plain_logits(plain, ids)[-1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_slots_of_different_lengths_together_gives_the_plain_logits(kind: str) -> None:
    plain, ours, slots = make_pair(kind)
    rows = [make_ids(length, 50 + length) for length in (9, 2, 20)]
    for slot, ids in enumerate(rows):
        slot_logits(ours, ids[:-1], PrefillLayout(slots.kv, [Span(slot, 0, len(ids) - 1, 0)]))
    position = torch.tensor([len(ids) - 1 for ids in rows])
    logits = slot_logits(ours, [ids[-1] for ids in rows], DecodeLayout(slots.kv, position, 24))
    expected = torch.stack([plain_logits(plain, ids)[-1] for ids in rows])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_layout_the_model_is_the_plain_one_padding_included(kind: str) -> None:
    plain, ours, _ = make_pair(kind)
    ids = torch.tensor([make_ids(12, 1), make_ids(12, 2)])
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with torch.no_grad():
        theirs, mine = plain(ids, attention_mask=mask).logits, ours(ids, attention_mask=mask).logits
    torch.testing.assert_close(mine[mask.bool()], theirs[mask.bool()], atol=1e-5, rtol=0)


def test_a_model_with_sliding_windows_is_refused_by_name() -> None:
    model = make_model("qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0)
    with pytest.raises(ConfigError, match=r"qwen2.*sliding-window"):
        Runner(model, {2})


def test_a_model_of_another_build_is_refused_by_name() -> None:
    """Its keys and values have no place in our slots: every call waited for ever."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=320, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2))
    with pytest.raises(ConfigError, match=r"'gpt2' is not built as Llama, Qwen2 and their like are; serve it"):
        Runner(model, {2})


@pytest.mark.parametrize(("kind", "turns"), [("default", False), ("linear", False), ("dynamic", True)])
def test_angles_are_looked_up_only_where_they_depend_on_positions_alone(kind: str, turns: bool) -> None:
    scaling = {} if kind == "default" else {"factor": 2.0}
    model = make_model(rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **scaling})
    assert turns_by_length(model) is turns
    cos_PD, sin_PD = angles_of(model.get_decoder(), 50)
    cos_1ND, sin_1ND = model.get_decoder().rotary_emb(torch.zeros(1, 2, 48), position_ids=torch.tensor([[7, 49]]))
    assert torch.equal(cos_PD[[7, 49]], cos_1ND[0])
    assert torch.equal(sin_PD[[7, 49]], sin_1ND[0])


def test_slots_keep_their_content_when_they_grow_or_move() -> None:
    slots = Slots(CacheShape(2, 2, 4), CPU, torch.float32)
    slots.reserve(3, 10, 4)
    slots.kv.normal_()
    slots.seed[2], slots.token[2, :4], slots.done[2] = 99, torch.arange(4), False
    held = slots.kv[:, :, 2, :10].clone()
    generation = slots.generation
    slots.reserve(20, 500, 100)
    assert slots.generation == generation + 1
    slots.move([2], [0], 10)
    assert torch.equal(slots.kv[:, :, 0, :10], held)
    assert slots.seed[0] == 99
    assert slots.token[0, :4].tolist() == [0, 1, 2, 3]
    assert slots.done[[0, 2]].tolist() == [False, True]


@pytest.mark.parametrize("at_once", [1, 2000, local_slots.COPIED_AT_ONCE])
def test_slots_are_copied_together_and_all_that_was_asked_for_arrives(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(local_slots, "COPIED_AT_ONCE", at_once)
    slots = Slots(CacheShape(2, 2, 4), CPU, torch.float32)
    slots.reserve(9, 100, 4)
    slots.kv.normal_()
    before = slots.kv.clone()
    copies = [(0, 3, 40), (1, 4, 3), (0, 5, 40), (2, 6, 90), (1, 7, 1)]
    slots.copy(copies)
    for source, target, length in copies:
        assert torch.equal(slots.kv[:, :, target, :length], before[:, :, source, :length])
    untouched = [0, 1, 2, 8]
    assert torch.equal(slots.kv[:, :, untouched], before[:, :, untouched])


def test_few_operations_copy_many_slots() -> None:
    copies = [(slot, 1000 + slot, 200 + slot % 100) for slot in range(500)]
    assert len(list(local_slots._alike(copies, 10**6))) == 1
    assert len(list(local_slots._alike([*copies, (0, 2000, 20)], 10**6))) == 2
    assert all(len(part) * part[0][2] <= 3000 for part in local_slots._alike(copies, 3000))


def test_slots_do_not_promise_more_memory_than_there_is() -> None:
    slots = Slots(CacheShape(32, 32, 128), CPU, torch.float32)
    assert slots.fits(1, 64)
    assert not slots.fits(10_000, 100_000)
