"""Prompts in one row: every token knows its slot and position, and padding touches nothing."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from jade.backbone.local_attention import PrefillLayout
from jade.backbone.local_packing import pack, packed_rows, request_bucket, token_bucket
from jade.backbone.local_slots import CacheShape, Slots

SLOTS = Slots(CacheShape(1, 1, 2), torch.device("cpu"), torch.float32)
SLOTS.reserve(8, 64, 8)
PROMPTS = st.dictionaries(st.integers(0, 7), st.tuples(st.integers(1, 40), st.integers(0, 39)), min_size=1).map(
    lambda found: {
        slot: (range(100 * slot, 100 * slot + size), min(cut, size - 1)) for slot, (size, cut) in found.items()
    }
)


@given(PROMPTS, st.booleans())
def test_every_token_stands_where_the_plain_layout_puts_it(prompts: dict[int, tuple[range, int]], padded: bool) -> None:
    spans, ids = packed_rows(prompts)
    packed = pack(spans, ids, [span.stop - 1 for span in spans], SLOTS.num_positions, padded=padded)
    token_N, slot_N, position_N = packed.row_3N
    plain, num = PrefillLayout(SLOTS.kv, spans), len(ids)
    assert torch.equal(slot_N[:num], plain.slot_N)
    assert torch.equal(position_N[:num], plain.position_N)
    assert token_N[:num].tolist() == [100 * slot + at for slot, at in zip(plain.slot_N, plain.position_N, strict=True)]
    assert (slot_N[num:] == -1).all()
    assert packed.max_q >= max(span.stop - span.start for span in spans)


@given(PROMPTS)
def test_requests_that_only_fill_the_shape_have_no_tokens(prompts: dict[int, tuple[range, int]]) -> None:
    spans, ids = packed_rows(prompts)
    packed = pack(spans, ids, [0], SLOTS.num_positions)
    ends, starts, seen = packed.bounds_3B
    assert ends.diff().tolist() == [span.stop - span.start for span in spans] + [0] * (len(ends) - 1 - len(spans))
    assert starts[: len(spans)].tolist() == [span.slot * SLOTS.num_positions for span in spans]
    assert seen[:-1].tolist() == [span.num_seen for span in spans] + [0] * (len(ends) - 1 - len(spans))


@given(st.integers(1, 40000), st.integers(1, 2000))
def test_shapes_waste_little(num_tokens: int, num_requests: int) -> None:
    assert num_tokens <= token_bucket(num_tokens) <= max(256, 2 * num_tokens, num_tokens + 4096)
    assert num_requests <= request_bucket(num_requests) <= max(16, 4 * num_requests)


def test_shapes_are_few() -> None:
    assert len({token_bucket(num) for num in range(1, 32769)}) <= 12
