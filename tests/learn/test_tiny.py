"""The model made from nothing: how it reads numbers."""

from __future__ import annotations

from jade.learn.tiny import make_tokenizer

TEXTS = ["the year 1999 was 1999"] * 50


def test_digits_are_tokens_of_their_own_where_that_is_asked_for() -> None:
    apart, merged = (make_tokenizer(TEXTS, 300, digits_apart=apart) for apart in (True, False))
    assert apart.tokenize("year 1999")[-4:] == ["1", "9", "9", "9"]
    assert len(merged.tokenize("year 1999")) < len(apart.tokenize("year 1999"))
    assert apart.decode(apart("Prices: turn 0.19\n")["input_ids"]) == "Prices: turn 0.19\n"
