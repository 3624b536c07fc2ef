"""A packed row as the fused layers see it: who looks at whom, by which angles, and where calls share a token.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, N = its action tokens, Q = tokens that a
layer is asked for: in the last one some, in the others all of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from jade.learn.layers.tiles import Tiles


@dataclass(frozen=True, slots=True)
class Queries:
    """The tokens of a row that look at the others: all of them, or some."""

    tiles: Tiles
    angles: tuple[Tensor, Tensor]
    token_Q: Tensor | None = None
    """Which of the row's these are, where they are not all."""

    def of(self, row_T: Tensor) -> Tensor:
        return row_T if self.token_Q is None else row_T.index_select(0, self.token_Q)

    def spread(self, some_Q: Tensor, num: int) -> Tensor:
        """Over a row of so many tokens, with zeros where there are none of these."""
        if self.token_Q is None:
            return some_Q
        return some_Q.new_zeros(num, *some_Q.shape[1:]).index_copy_(0, self.token_Q, some_Q)


class Row:
    """A packed row, as all layers see it."""

    def __init__(self, everyone: Queries, asked: Queries, place_S: Tensor | None, place_N: Tensor) -> None:
        self.everyone = everyone
        self.asked = asked
        """Those that the last layer is asked for: behind its attention tokens no longer meet."""
        self.place_S = place_S
        self.place_N = place_N
        """Where among these the states of the action tokens stand."""

    @property
    def angles(self) -> tuple[Tensor, Tensor]:
        return self.everyone.angles

    @cached_property
    def calls(self) -> tuple[Tensor, Tensor]:
        """Where each token stands in the calls: an order of their tokens, and the end of each token's part of it."""
        assert self.place_S is not None, "some token is shared"
        sorted_S, order_S = self.place_S.sort(stable=True)
        token_T = torch.arange(len(self.angles[0]), device=self.place_S.device)
        return order_S, torch.searchsorted(sorted_S, token_T, right=True)
