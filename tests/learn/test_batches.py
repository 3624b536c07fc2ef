from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_transition

from jade.learn.batches import cut_evenly, make_batch, plan_batches

lengths_of_calls = st.lists(st.integers(1, 900), min_size=1, max_size=60)


@given(lengths_of_calls, st.integers(64, 4000))
def test_batches_hold_every_call_once_and_no_more_than_their_size(lengths: list[int], tokens: int) -> None:
    plan = plan_batches(lengths, tokens)
    assert sorted(row for rows in plan for row in rows) == list(range(len(lengths)))
    for rows in plan:
        assert sum(lengths[row] for row in rows) <= tokens or len(rows) == 1


def test_batches_are_about_equally_full() -> None:
    lengths = [100] * 33
    assert [len(rows) for rows in plan_batches(lengths, 3200)] == [17, 16]


def test_no_calls_need_no_batches() -> None:
    assert plan_batches([], 100) == []


def test_a_batch_is_the_calls_one_behind_the_other_without_padding() -> None:
    calls = [make_transition(num_tokens=n) for n in (2, 4)]
    batch = make_batch(calls, (1, 0))
    assert batch.bounds == (0, 6, 10)
    assert batch.id_T.tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4]
    assert batch.position_T.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert batch.target_N.tolist() == [*calls[1].action_ids, *calls[0].action_ids]


@given(lengths_of_calls, st.integers(1, 8))
def test_parts_of_an_update_hold_every_call_once_and_about_equally_many_tokens(lengths: list[int], parts: int) -> None:
    cut = cut_evenly(lengths, parts)
    assert [row for part in cut for row in part] == list(range(len(lengths)))
    assert 1 <= len(cut) <= parts
    sizes = [sum(lengths[row] for row in part) for part in cut]
    assert all(size <= sum(lengths) / parts + max(lengths) for size in sizes)


def test_no_calls_have_no_parts() -> None:
    assert cut_evenly([], 4) == []
