"""Prompts are found where they stand, and nowhere else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jade.backbone.local.job import as_words
from jade.backbone.local.standing import Standing

SLOTS = st.integers(0, 5)
ROWS = st.sampled_from([as_words((1,)), as_words((1, 2)), as_words((3,))])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), SLOTS, ROWS),
        st.tuples(st.just("remove"), SLOTS),
        st.tuples(st.just("move"), SLOTS, SLOTS).filter(lambda change: change[1] != change[2]),
    )
)


@given(CHANGES, ROWS, st.sets(SLOTS))
def test_a_prompt_is_found_in_the_lowest_slot_that_holds_it(
    changes: list[tuple[object, ...]], row: bytes, but: set[int]
) -> None:
    standing = Standing()
    held: dict[object, object] = {}
    for name, *values in changes:
        getattr(standing, str(name))(*values)
        if name == "put":
            held[values[0]] = values[1]
        elif name == "remove":
            held.pop(values[0], None)
        else:
            moved = held.pop(values[0], None)
            held.pop(values[1], None)
            held |= {values[1]: moved} if moved else {}
    slots = [slot for slot, prompt in held.items() if prompt == row and slot not in but]
    assert standing.find(row, but) == min(slots, default=None)  # type: ignore[type-var]


def test_nothing_stands_after_clearing() -> None:
    standing = Standing()
    standing.put(0, as_words((1, 2)))
    standing.clear()
    assert standing.find(as_words((1, 2))) is None
