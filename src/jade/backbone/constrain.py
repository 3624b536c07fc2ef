"""Decoding that can only end in one of the given texts, by masking tokens that lead nowhere else (llguidance).

For inference: masking changes the distribution that is sampled from, and the log-probs returned are those of the masked
one, so such steps are not to be learned from.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jade.errors import BackboneFailed


class ChoiceGrammars:
    """Makes matchers for one tokenizer; a grammar is compiled once for each set of choices."""

    def __init__(self, tokenizer: Any, vocabulary_size: int, eos_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._eos_ids = sorted(eos_ids)
        self._matcher = functools.lru_cache(maxsize=64)(self._compile)

    def start(self, choices: Sequence[str]) -> ChoiceMatcher:
        return ChoiceMatcher(self._matcher(tuple(choices)).deep_copy(), self._vocabulary_size)

    def _compile(self, choices: tuple[str, ...]) -> Any:
        from llguidance import LLMatcher

        rule = " | ".join(map(_quoted, choices))
        matcher = LLMatcher(self._vocabulary, LLMatcher.grammar_from_lark(f"start: {rule}"), log_level=0)
        if matcher.is_error():
            raise BackboneFailed(f"choices {choices!r} cannot be decoded: {matcher.get_error()}")
        return matcher

    @functools.cached_property
    def _vocabulary(self) -> Any:
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self._tokenizer, n_vocab=self._vocabulary_size, eos_token=self._eos_ids)


class ChoiceMatcher:
    """What one constrained request may sample next."""

    def __init__(self, matcher: Any, vocabulary_size: int) -> None:
        self._matcher = matcher
        self._vocabulary_size = vocabulary_size

    def allowed(self) -> NDArray[np.bool_]:
        """One truth value for each token of the vocabulary."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._vocabulary_size].astype(np.bool_)

    def advance(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise BackboneFailed(f"constrained decoding lost its place: {self._matcher.get_error()}")


def most_tokens(choices: Sequence[str]) -> int:
    """Tokens that always suffice for any of the choices: a byte each at worst, and the end of the turn."""
    return max(len(choice.encode()) for choice in choices) + 1


def _quoted(text: str) -> str:
    """A Lark string: as in JSON, but that the delete character has to be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
