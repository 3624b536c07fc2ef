"""Several prompts, or what follows their cached prefixes, as one row of tokens: the index tensors, built on the host
and padded to a few shapes, so that reading them can be captured like a decode step.

N = tokens in the row, B = requests that read, R = requests that want logits (those that copy another's prompt too).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jade.backbone.local_attention import Span

TOKEN_STEP = 4096
FEWEST_TOKENS = 256
FEWEST_REQUESTS = 16


@dataclass(frozen=True, slots=True)
class Packed:
    """What a prefill reads. A padded token has slot -1 and is stored nowhere; a padded request has no tokens."""

    row_3N: Tensor
    """Token ids, slots and positions."""
    bounds_3B: Tensor
    """Where requests end in the row (from 0 on), where their slots begin in memory, how many positions they see."""
    last_R: Tensor
    """Whose logits are wanted."""
    max_q: int
    """No request has more tokens in the row. Never one: for that the kernel has another way."""

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.row_3N, self.bounds_3B, self.last_R


def pack(
    spans: Sequence[Span], ids: array[int], last: Sequence[int], num_positions: int, *, padded: bool = True
) -> Packed:
    """`ids` are the tokens of all spans; a slot has `num_positions` positions."""
    num_tokens = token_bucket(len(ids)) if padded else len(ids)
    num_spans = request_bucket(len(last)) if padded else len(spans)
    lengths = torch.tensor([span.stop - span.start for span in spans])
    shift = torch.tensor([span.num_before - span.start for span in spans])
    row_3N = torch.zeros(3, num_tokens, dtype=torch.long)
    row_3N[1] = -1
    real = slice(len(ids))
    row_3N[0, real] = torch.frombuffer(ids, dtype=torch.long)
    row_3N[1, real] = torch.tensor([span.slot for span in spans]).repeat_interleave(lengths)
    row_3N[2, real] = torch.arange(len(ids)) + shift.repeat_interleave(lengths)
    bounds_3B = torch.zeros(3, num_spans + 1, dtype=torch.int32)
    bounds_3B[0] = len(ids)
    bounds_3B[:, : len(spans)] = torch.tensor(
        [[span.start, span.slot * num_positions, span.num_seen] for span in spans], dtype=torch.int32
    ).T
    last_R = torch.zeros(num_spans if padded else len(last), dtype=torch.long)
    last_R[: len(last)] = torch.tensor(last)
    max_q = min(num_tokens, num_positions) if padded else max(2, int(lengths.max()))
    return Packed(row_3N, bounds_3B, last_R, max_q)


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


def packed_rows(prompts: Mapping[int, tuple[Sequence[int], int]]) -> tuple[list[Span], array[int]]:
    """Spans and tokens, by slot: the prompt, and how much of it is cached."""
    spans: list[Span] = []
    ids = array("q")
    for slot, (prompt_ids, num_cached) in prompts.items():
        start = len(ids)
        ids.extend(prompt_ids[num_cached:])
        spans.append(Span(slot, start, len(ids), num_cached))
    return spans, ids
