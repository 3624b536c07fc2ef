"""The model made from nothing: how it reads numbers."""

from __future__ import annotations

import pytest

from jade.learn.tiny import make_tokenizer


@pytest.mark.parametrize(("apart", "tokens"), [(True, ["1", "9", "9", "9"]), (False, ["1999"])])
def test_digits_are_tokens_of_their_own_where_that_is_asked_for(apart: bool, tokens: list[str]) -> None:
    tokenizer = make_tokenizer(["the year 1999 was 1999"] * 50, 300, digits_apart=apart)
    assert tokenizer.tokenize("1999") == tokens
    assert tokenizer.decode(tokenizer("Prices: turn 0.19\n")["input_ids"]) == "Prices: turn 0.19\n"
