"""Prompts in one row: tokens know their slots and positions, pieces what they see, and padding touches nothing."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from jade.backbone.local.attention import PIECE, PrefillLayout
from jade.backbone.local.job import as_words
from jade.backbone.local.packing import Admission, Shape, Sheet, pack, request_bucket, spans_of, token_bucket
from jade.backbone.local.slots import CacheShape, Slots
from jade.types import Sampling

SLOTS = Slots(CacheShape(1, 1, 2), torch.device("cpu"), torch.float32)
SLOTS.reserve(8, 400, 8)


def admission(slot: int, size: int, num_cached: int) -> Admission:
    ids = range(1000 * slot, 1000 * slot + size)
    sampling = Sampling(0.5 + slot, top_p=1 / (1 + slot), seed=2**63 - slot)
    return Admission(slot, as_words(ids), min(num_cached, size - 1), 20 + slot, sampling)


ADMITTED = st.dictionaries(st.integers(0, 7), st.tuples(st.integers(1, 380), st.integers(0, 379)), min_size=1).map(
    lambda found: [admission(slot, *sizes) for slot, sizes in found.items()]
)


def sheet_of(admitted: list[Admission], *, padded: bool = True) -> Sheet:
    words, shape = pack(admitted, SLOTS.num_positions, padded=padded)
    return Sheet.of(torch.from_numpy(words), shape)


@given(ADMITTED, st.booleans())
def test_every_token_stands_where_the_plain_layout_puts_it(admitted: list[Admission], padded: bool) -> None:
    sheet = sheet_of(admitted, padded=padded)
    token_N, slot_N, position_N = sheet.row_3N
    plain = PrefillLayout(SLOTS.kv, spans_of(admitted))
    num = len(plain.slot_N)
    assert torch.equal(slot_N[:num], plain.slot_N)
    assert torch.equal(position_N[:num], plain.position_N)
    assert token_N[:num].tolist() == [1000 * slot + at for slot, at in zip(plain.slot_N, plain.position_N, strict=True)]
    assert (slot_N[num:] == -1).all()
    assert sheet.last_R[: len(admitted)].tolist() == [span.stop - 1 for span in spans_of(admitted)]


@given(ADMITTED, st.booleans())
def test_the_pieces_of_a_prompt_follow_each_other_and_the_last_sees_all(
    admitted: list[Admission], padded: bool
) -> None:
    start_C, place_C, seen_C = sheet_of(admitted, padded=padded).bounds_3C.tolist()
    number = 0
    for span in spans_of(admitted):
        for start in range(span.start, span.stop, PIECE):
            stop = min(start + PIECE, span.stop)
            assert (start_C[number], start_C[number + 1]) == (start, stop)
            assert place_C[number] == span.slot * SLOTS.num_positions
            assert seen_C[number] == span.num_before + stop - span.start
            number += 1
    assert not any(stop - start for start, stop in zip(start_C[number:], start_C[number + 1 :], strict=False))
    assert not any(seen_C[number:])


@given(ADMITTED, st.booleans())
def test_slots_are_told_of_their_requests_and_of_nobody_elses(admitted: list[Admission], padded: bool) -> None:
    sheet = sheet_of(admitted, padded=padded)
    states = zip(*(numbers.tolist() for numbers in sheet.state.values()), strict=True)
    told = dict(zip(sheet.slot_R.tolist(), states, strict=True))
    assert told.keys() == {one.slot for one in admitted}
    for one in admitted:
        length, limit, seed, temperature, top_p = told[one.slot]
        assert (length, limit, seed % 2**64) == (one.num_tokens, one.limit, one.sampling.seed)
        assert temperature == one.sampling.temperature
        assert abs(top_p - one.sampling.top_p) < 1e-6


def test_a_twin_wants_the_logits_of_the_prompt_it_shares_and_reads_nothing() -> None:
    first = admission(3, 30, 4)
    twin = Admission(5, first.row, 30, 9, Sampling(), twin=3)
    sheet = sheet_of([admission(1, 10, 0), first, twin], padded=False)
    assert sheet.last_R.tolist() == [9, 35, 35]
    assert sheet.row_3N.shape == (3, 36)
    assert sheet.state["prompt_length"].tolist() == [10, 30, 30]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=300))
def test_a_padded_shape_has_room_for_every_piece(lengths: list[int]) -> None:
    shape = Shape.padded(sum(lengths), len(lengths))
    assert sum(-(-length // PIECE) for length in lengths) <= shape.num_pieces


@given(st.integers(1, 40000), st.integers(1, 2000))
def test_shapes_waste_little(num_tokens: int, num_requests: int) -> None:
    assert num_tokens <= token_bucket(num_tokens) <= max(256, 2 * num_tokens, num_tokens + 4096)
    assert num_requests <= request_bucket(num_requests) <= max(16, 4 * num_requests)


def test_shapes_are_few() -> None:
    assert len({token_bucket(num) for num in range(1, 32769)}) <= 12
