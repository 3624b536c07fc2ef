"""Several prompts, or what follows their cached prefixes, as one row of tokens: all that a prefill is told, built on
the host in one stretch of memory and padded to a few shapes, so that it is sent at once and can be captured like a
decode step.

N = tokens in the row, C = pieces of at most `PIECE` tokens, B = requests that read, R = requests that want logits
(those that copy another's prompt too).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jade.backbone.local.attention import PIECE, Span
from jade.backbone.local.job import WORD
from jade.backbone.local.sampling import seed_word
from jade.types import Sampling

TOKEN_STEP = 4096
FEWEST_TOKENS = 256
FEWEST_REQUESTS = 16
WHOLE = ("prompt_length", "limit", "seed")
BROKEN = ("temperature", "top_p")
"""What a slot is told of its request, in whole and in broken numbers."""
Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that enters a slot. The first `num_cached` positions of the slot are filled already; or, where another
    admission of the same moment has the same prompt, all of them are filled from that one's slot."""

    slot: int
    row: bytes
    """The prompt's token ids as words."""
    num_cached: int
    limit: int
    sampling: Sampling
    twin: int | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.row) // WORD


@dataclass(frozen=True, slots=True)
class Shape:
    """How much room a prefill's words have; equal shapes can be read by one captured graph."""

    num_tokens: int
    num_requests: int
    num_pieces: int

    @classmethod
    def padded(cls, num_tokens: int, num_requests: int) -> Shape:
        """Cut into pieces, so many tokens of so many requests are never more than this."""
        tokens, requests = token_bucket(num_tokens), request_bucket(num_requests)
        return cls(tokens, requests, tokens // PIECE + requests)

    def sizes(self) -> tuple[int, ...]:
        """In words: slots and what they are told in whole numbers, the row, what they are told in broken ones, the
        wanted, the pieces. In this order, because kernels are compiled anew for what does not begin at 16 bytes."""
        requests = self.num_requests
        return (1 + len(WHOLE)) * requests, 3 * self.num_tokens, requests, requests, -(-3 * (self.num_pieces + 1) // 2)


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a prefill is told. A padded token has slot -1 and is stored nowhere; a padded piece has no tokens; a padded
    request is the first one said again."""

    row_3N: Tensor
    """Token ids, slots and positions."""
    slot_R: Tensor
    state: Mapping[str, Tensor]
    """What the slots are told, by name [R]."""
    last_R: Tensor
    """Whose logits are wanted."""
    bounds_3C: Tensor
    """Where pieces begin in the row, where their slots begin in memory, how many positions they see; and the end."""

    @classmethod
    def of(cls, words: Tensor, shape: Shape) -> Sheet:
        """The words as tensors, wherever they are; nothing is copied."""
        whole, row, broken, last, bounds = words.split(shape.sizes())
        slot_R, *others = whole.view(-1, shape.num_requests)
        numbers = broken.view(torch.float32).view(len(BROKEN), -1)
        return cls(
            row_3N=row.view(3, -1),
            slot_R=slot_R,
            state=dict(zip((*WHOLE, *BROKEN), (*others, *numbers), strict=True)),
            last_R=last,
            bounds_3C=bounds.view(torch.int32)[: 3 * (shape.num_pieces + 1)].view(3, -1),
        )


def pack(admitted: Sequence[Admission], num_positions: int, *, padded: bool = True) -> tuple[Words, Shape]:
    """A slot has `num_positions` positions. With numpy: every operation of torch lets go of the interpreter's lock, and
    gets it back only when the other threads have had their turn."""
    readers = [one for one in admitted if one.twin is None]
    tokens = np.frombuffer(b"".join(one.row[WORD * one.num_cached :] for one in readers), dtype=np.int64)
    slot_B, cached_B, all_B = np.array([(one.slot, one.num_cached, one.num_tokens) for one in readers]).T
    length_B = all_B - cached_B
    stop_B = np.cumsum(length_B)
    shift_B = cached_B - (stop_B - length_B)
    pieces_3C = _pieces(slot_B * num_positions, stop_B, length_B, shift_B)
    shape = Shape(len(tokens), len(admitted), pieces_3C.shape[1])
    if padded:
        shape = Shape.padded(len(tokens), len(admitted))
    words = np.zeros(sum(shape.sizes()), dtype=np.int64)
    whole, row, broken, last, bounds = np.split(words, np.cumsum(shape.sizes())[:-1])
    _fill_state(whole.reshape(-1, shape.num_requests), broken.view(np.float32).reshape(2, -1), admitted)
    _fill_row(row.reshape(3, -1), tokens, slot_B, shift_B, length_B)
    ends = dict(zip(slot_B.tolist(), (stop_B - 1).tolist(), strict=True))
    last[: len(admitted)] = [ends[one.slot if one.twin is None else one.twin] for one in admitted]
    bounds_3C = bounds.view(np.int32)[: 3 * (shape.num_pieces + 1)].reshape(3, -1)
    bounds_3C[0] = len(tokens)
    bounds_3C[:, : pieces_3C.shape[1]] = pieces_3C
    return words, shape


def _pieces(place_B: Words, stop_B: Words, length_B: Words, shift_B: Words) -> Words:
    """Where each begins in the row, where its slot begins in memory, how many positions its last token sees."""
    num_B = -(-length_B // PIECE)
    of_C = np.repeat(np.arange(len(num_B)), num_B)
    number_C = np.arange(len(of_C)) - np.repeat(np.cumsum(num_B) - num_B, num_B)
    start_C = (stop_B - length_B)[of_C] + PIECE * number_C
    return np.stack([start_C, place_B[of_C], np.minimum(start_C + PIECE, stop_B[of_C]) + shift_B[of_C]])


def _fill_row(row_3N: Words, tokens: Words, slot_B: Words, shift_B: Words, length_B: Words) -> None:
    num = len(tokens)
    row_3N[1] = -1
    row_3N[0, :num] = tokens
    row_3N[1, :num] = np.repeat(slot_B, length_B)
    row_3N[2, :num] = np.arange(num) + np.repeat(shift_B, length_B)


def _fill_state(whole: Words, broken: NDArray[np.float32], admitted: Sequence[Admission]) -> None:
    num = len(admitted)
    whole[:, :num] = np.array(
        [(one.slot, one.num_tokens, one.limit, seed_word(one.sampling.seed)) for one in admitted], dtype=np.int64
    ).T
    broken[:, :num] = np.array([(one.sampling.temperature, one.sampling.top_p) for one in admitted]).T
    for numbers in (whole, broken):
        numbers[:, num:] = numbers[:, :1]


def token_bucket(num_tokens: int) -> int:
    """Powers of two, then whole steps: what is small costs little anyway, what is large must not be padded much."""
    if num_tokens > TOKEN_STEP:
        return -(-num_tokens // TOKEN_STEP) * TOKEN_STEP
    return max(FEWEST_TOKENS, 1 << (num_tokens - 1).bit_length())


def request_bucket(num_requests: int) -> int:
    """Powers of four."""
    bucket = FEWEST_REQUESTS
    while bucket < num_requests:
        bucket *= 4
    return bucket


def spans_of(admitted: Sequence[Admission]) -> list[Span]:
    """Where the prompts that are read stand in the row."""
    spans: list[Span] = []
    start = 0
    for one in admitted:
        if one.twin is None:
            stop = start + one.num_tokens - one.num_cached
            spans.append(Span(one.slot, start, stop, one.num_cached))
            start = stop
    return spans
