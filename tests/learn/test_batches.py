from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

import torch
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_transition

from jade.learn.batches import cut_evenly, make_batch, num_shared, plan_shares


@dataclass(frozen=True)
class Pair:
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]


few_ids = st.integers(1, 3)
prompts_and_actions = st.lists(
    st.builds(
        Pair,
        st.lists(few_ids, min_size=1, max_size=9).map(tuple),
        st.lists(few_ids, min_size=1, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)
PROMPT_TOKENS = len(make_transition().prompt_ids)
lengths_of_calls = st.lists(st.integers(1, 900), min_size=1, max_size=60)


@given(lengths_of_calls, st.integers(64, 4000))
def test_batches_hold_every_call_once_and_no_more_than_their_size(lengths: list[int], tokens: int) -> None:
    (plan,) = plan_shares([make_transition(num_tokens=n) for n in lengths], tokens, 1)
    lengths = [n + PROMPT_TOKENS for n in lengths]
    assert sorted(row for rows in plan for row in rows) == list(range(len(lengths)))
    for rows in plan:
        assert sum(lengths[row] for row in rows) <= tokens or len(rows) == 1


def test_batches_are_about_equally_full() -> None:
    calls = [make_transition(num_tokens=100 - PROMPT_TOKENS)] * 33
    assert [len(rows) for rows in plan_shares(calls, 3200, 1)[0]] == [17, 16]


def test_a_batch_is_the_calls_one_behind_the_other_without_padding() -> None:
    calls = [make_transition(num_tokens=n) for n in (2, 4)]
    batch = make_batch(calls, (1, 0))
    assert batch.bounds == batch.whole_bounds == (0, 6, 10)
    assert batch.id_T.tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4]
    assert batch.position_T.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert batch.target_N.tolist() == [*calls[1].action_ids, *calls[0].action_ids]
    assert batch.state_N.tolist() == [1, 2, 3, 4, 7, 8]
    assert batch.place_S is None


def test_calls_that_begin_alike_share_the_beginning() -> None:
    batch = make_batch([Pair((1, 2, 5), (7, 8)), Pair((1, 2, 5), (9,)), Pair((1, 6), (7,))], (0, 1, 2), share=True)
    assert batch.id_T.tolist() == [1, 2, 5, 7, 8, 9, 6, 7]
    assert batch.position_T.tolist() == [0, 1, 2, 3, 4, 3, 1, 2]
    assert (batch.bounds, batch.whole_bounds) == ((0, 5, 6, 8), (0, 5, 9, 12))
    assert batch.place_S is not None
    assert batch.place_S.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 6, 7]
    assert batch.target_N.tolist() == [7, 8, 9, 7]
    assert batch.state_N.tolist() == [2, 3, 2, 6]


@given(prompts_and_actions)
def test_every_call_can_be_read_from_a_shared_row(calls: list[Pair]) -> None:
    batch = make_batch(calls, range(len(calls)), share=True)
    place_S = torch.arange(len(batch.id_T)) if batch.place_S is None else batch.place_S
    for call, (start, end) in zip(calls, pairwise(batch.whole_bounds), strict=True):
        places = place_S[start:end]
        assert batch.id_T[places].tolist() == [*call.prompt_ids, *call.action_ids]
        assert batch.position_T[places].tolist() == list(range(end - start))


@given(prompts_and_actions, st.integers(12, 40), st.integers(1, 3))
def test_shares_hold_every_call_once_in_batches_that_fit(calls: list[Pair], tokens: int, num_shares: int) -> None:
    shares = plan_shares(calls, tokens, num_shares, share=True)
    assert len(shares) == num_shares
    assert len(set(map(len, shares))) == 1
    assert sorted(row for plan in shares for rows in plan for row in rows) == list(range(len(calls)))
    for rows in filter(None, (rows for plan in shares for rows in plan)):
        assert len(make_batch(calls, rows, share=True).id_T) <= tokens or len(rows) == 1


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_what_two_prompts_share_is_their_common_beginning(one: list[int], other: list[int]) -> None:
    assert num_shared(tuple(one), tuple(other)) == len(
        list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    )


@given(lengths_of_calls, st.integers(1, 8))
def test_parts_of_an_update_hold_every_call_once_and_about_equally_many_tokens(lengths: list[int], parts: int) -> None:
    cut = cut_evenly(lengths, parts)
    assert [row for part in cut for row in part] == list(range(len(lengths)))
    assert 1 <= len(cut) <= parts
    sizes = [sum(lengths[row] for row in part) for part in cut]
    assert all(size <= sum(lengths) / parts + max(lengths) for size in sizes)


def test_no_calls_have_no_parts() -> None:
    assert cut_evenly([], 4) == []


@given(prompts_and_actions, st.booleans())
def test_a_batch_knows_between_which_tokens_its_states_are_asked_for(calls: list[Pair], share: bool) -> None:
    batch = make_batch(calls, range(len(calls)), share=share)
    places = set(batch.state_N.tolist())
    for (first, behind), (start, end) in zip(batch.asked, pairwise(batch.bounds), strict=True):
        inside = sorted(places & set(range(start, end)))
        assert (first, behind) == (inside[0], inside[-1] + 1) if inside else first == behind
        assert start <= first <= behind <= end


def test_in_the_order_of_prompts_nothing_but_states_is_asked_for() -> None:
    """So the last layer works for none but those."""
    calls = [Pair((1, 2, 3), (4, 5)), Pair((1, 2, 3), (6,)), Pair((1, 2, 3, 9), (7, 8, 9)), Pair((5,), (5, 5))]
    batch = make_batch(calls, range(4), share=True)
    asked = [place for span in batch.asked for place in range(*span)]
    assert asked == sorted(set(batch.state_N.tolist()))
