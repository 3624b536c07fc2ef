from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_transition

from jade.learn.batches import MAX_PADDING, make_batch, padding_share, plan_batches

lengths_of_calls = st.lists(st.integers(1, 900), min_size=1, max_size=60)


@given(lengths_of_calls, st.integers(64, 4000))
def test_batches_hold_every_call_once_within_their_size_and_padding(lengths: list[int], tokens: int) -> None:
    plan = plan_batches(lengths, tokens)
    assert sorted(row for rows in plan for row in rows) == list(range(len(lengths)))
    for rows in plan:
        area = len(rows) * max(lengths[row] for row in rows)
        assert area <= tokens or len(rows) == 1
        assert 1 - sum(lengths[row] for row in rows) / area <= MAX_PADDING + 1e-9
    assert padding_share(lengths, plan) <= MAX_PADDING + 1e-9


def test_no_calls_need_no_batches() -> None:
    assert plan_batches([], 100) == []
    assert padding_share([], []) == 0.0


def test_a_batch_points_at_exactly_the_action_tokens_in_the_order_of_its_rows() -> None:
    calls = [make_transition(num_tokens=n) for n in (2, 4)]
    batch = make_batch(calls, (1, 0))
    assert batch.target_N.tolist() == [*calls[1].action_ids, *calls[0].action_ids]
    assert batch.ids_BL.shape == (2, 6)
    assert batch.ids_BL[1].tolist() == [1, 2, 3, 4, 0, 0]
    assert torch.equal(batch.row_N, torch.tensor([0, 0, 0, 0, 1, 1]))
