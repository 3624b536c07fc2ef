"""A step in one line."""

from __future__ import annotations

import pytest

from jade.screen.tree import describe
from jade.types import Action, Answer, Selection


@pytest.mark.parametrize(
    ("action", "line"), [(None, "nothing"), (Answer(" "), "nothing"), (Answer("a\nb"), "a b"), (Selection(()), "none")]
)
def test_what_ran_is_one_line_that_is_never_empty(action: Action | None, line: str) -> None:
    assert describe(action) == line
