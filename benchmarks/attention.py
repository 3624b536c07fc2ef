"""How long attention over a packed row of short calls takes: our kernels with several tile sizes, beside torch's flash.

    python benchmarks/attention.py [--tokens 65536] [--prompt 500] [--rollouts 8] [--heads 9 --keys 3 --size 64]

On a GPU only, within a minute. Two rows are made, of calls as a team writes them: one where the rollouts of a question
share its prompt, and one where each call stands whole. Times are medians of one layer's work. Each is printed when it
is measured; at the end come the best of each row, and the best of both together, which is what `CHOICE` in
`jade/learn/layers/tiles.py` should say. Every variant is a kernel to compile, a second or two each: those not reached
before `--seconds` are left out. How far ours and flash lie apart is printed too, since speed alone shows little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from device_profile import REPEATS, milliseconds_of
from torch import Tensor

from jade.backbone.local.blocks import Blocks
from jade.learn.layers.tiles import CHOICE, Choice, Tiles, plan_tiles

VARIANTS = {
    "forward": (
        Blocks(rows=64, keys=64, warps=4, stages=2),
        Blocks(rows=64, keys=128, warps=4, stages=2),
        Blocks(rows=128, keys=64, warps=4, stages=3),
        Blocks(rows=128, keys=64, warps=8, stages=3),
        Blocks(rows=128, keys=128, warps=8, stages=2),
        Blocks(rows=64, keys=32, warps=4, stages=3),
        Blocks(rows=128, keys=32, warps=4, stages=3),
    ),
    "to_queries": (
        Blocks(rows=64, keys=64, warps=4, stages=3),
        Blocks(rows=64, keys=64, warps=4, stages=2),
        Blocks(rows=64, keys=128, warps=4, stages=2),
        Blocks(rows=128, keys=64, warps=8, stages=2),
        Blocks(rows=128, keys=64, warps=8, stages=3),
        Blocks(rows=128, keys=32, warps=8, stages=3),
        Blocks(rows=128, keys=32, warps=4, stages=3),
    ),
    "to_keys": (
        Blocks(rows=64, keys=64, warps=4, stages=3),
        Blocks(rows=64, keys=64, warps=4, stages=2),
        Blocks(rows=64, keys=64, warps=8, stages=2),
        Blocks(rows=64, keys=128, warps=8, stages=2),
        Blocks(rows=64, keys=128, warps=8, stages=3),
        Blocks(rows=32, keys=128, warps=8, stages=2),
        Blocks(rows=32, keys=128, warps=8, stages=3),
        Blocks(rows=16, keys=128, warps=8, stages=3),
    ),
}
"""Beside those of `CHOICE`. By kernel, as `Choice` names them. None spills registers on an H200, for heads of 64."""
SEED = 0


@dataclass(frozen=True)
class Row:
    """What a layer's attention works on."""

    name: str
    bounds: tuple[int, ...]
    whole_bounds: tuple[int, ...]
    grad_TAD: Tensor
    query_TAD: Tensor
    key_SKD: Tensor
    value_SKD: Tensor
    scale: float

    @property
    def group(self) -> int:
        return self.query_TAD.shape[1] // self.key_SKD.shape[1]

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.grad_TAD, self.query_TAD, self.key_SKD, self.value_SKD

    @cached_property
    def angles(self) -> tuple[Tensor, Tensor]:
        """Of no turn: what comes out can then be compared with what turns nothing."""
        one_TE = self.query_TAD.new_ones(len(self.query_TAD), self.query_TAD.shape[2] // 2)
        return one_TE, torch.zeros_like(one_TE)

    def make_into(self) -> Tensor:
        """Where gradients at queries, keys and values of the row's tokens stand side by side."""
        num_heads = self.query_TAD.shape[1] + 2 * self.key_SKD.shape[1]
        return self.query_TAD.new_zeros(len(self.query_TAD), num_heads, self.query_TAD.shape[2])

    def parts_of(self, into_TXD: Tensor) -> tuple[Tensor, ...]:
        """What belongs to queries, and what to keys and values."""
        return into_TXD.split_with_sizes((self.query_TAD.shape[1], 2 * self.key_SKD.shape[1]), 1)

    def put_together(self, shared: Sequence[Tensor], into_TXD: Tensor) -> None:
        """Gradients at keys and values that no other call sees, from where they belong to where flash gives them."""
        num_keys = self.key_SKD.shape[1]
        _, *own = into_TXD.split_with_sizes((self.query_TAD.shape[1], num_keys, num_keys), 1)
        added, whole = np.diff(self.bounds), np.diff(self.whole_bounds)
        after = np.append((whole - added)[1:], 0)
        for end, to, num in zip(self.bounds[1:], self.whole_bounds[1:], np.minimum(added, whole - after), strict=True):
            for whole_SKD, own_TKD in zip(shared, own, strict=True):
                whole_SKD[to - num : to] = own_TKD[end - num : end]

    def plan(self, choice: Choice) -> Tiles:
        return plan_tiles(self.bounds, self.whole_bounds, self.group, self.query_TAD.device, choice)


def make_row(name: str, options: argparse.Namespace) -> Row:
    draw = np.random.default_rng(SEED)
    calls: list[tuple[int, int]] = []
    while sum(added for added, _ in calls) < options.tokens:
        prompt = int(draw.integers(options.prompt * 4 // 5, options.prompt * 6 // 5 + 1))
        for rollout in range(options.rollouts):
            action = int(draw.integers(20, 61))
            shares = name == "shared" and rollout > 0
            calls.append((action if shares else prompt + action, prompt + action))
    bounds, whole_bounds = ((0, *accumulate(sizes)) for sizes in zip(*calls, strict=True))
    generator = torch.Generator("cuda").manual_seed(SEED)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    both_SXD = some(whole_bounds[-1], 2 * options.keys, options.size)
    grad_TAD, query_TAD = (some(bounds[-1], options.heads, options.size) for _ in range(2))
    key_SKD, value_SKD = both_SXD[:, : options.keys], both_SXD[:, options.keys :]
    return Row(name, bounds, whole_bounds, grad_TAD, query_TAD, key_SKD, value_SKD, options.size**-0.5)


def measure_flash(row: Row) -> tuple[dict[str, float], tuple[Tensor, ...]]:
    """Milliseconds each way, and what came out and back."""
    bounds = [torch.tensor(ends, dtype=torch.int32, device="cuda") for ends in (row.bounds, row.whole_bounds)]
    longest = [max(end - start for start, end in pairwise(ends)) for ends in (row.bounds, row.whole_bounds)]
    seen = row.query_TAD, row.key_SKD, row.value_SKD

    def forward() -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
            *seen, *bounds, *longest, 0.0, True, False, scale=row.scale
        )
        return found

    out_TAD, log_sum, state, unused, _ = forward()

    def backward() -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_backward(
            row.grad_TAD, *seen, out_TAD, log_sum, *bounds, *longest, 0.0, True, state, unused, scale=row.scale
        )
        return found

    took = {"forward": milliseconds_of(forward), "backward": milliseconds_of(backward)}
    return took, (out_TAD, *backward())


def work_of(kernels: Any, row: Row, kernel: str, choice: Choice) -> Callable[[], object]:
    """One kernel's work, all it needs made before."""
    from jade.learn.layers.kernels.attention_back import back_to_keys, back_to_queries

    tiles = row.plan(choice)
    if kernel == "forward":
        return lambda: kernels.attend(*row.inputs[1:], row.angles, tiles, row.scale)
    out_TAD, log_sum_KTG, _ = kernels.attend(*row.inputs[1:], row.angles, tiles, row.scale)
    query_into_TAD, others_into_TXD = row.parts_of(row.make_into())
    how = row.angles, tiles, row.scale
    if kernel == "to_queries":
        return lambda: back_to_queries(*row.inputs, out_TAD, log_sum_KTG, *how, query_into_TAD)
    marks_KTG = back_to_queries(*row.inputs, out_TAD, log_sum_KTG, *how, query_into_TAD)
    return lambda: back_to_keys(*row.inputs, marks_KTG, *how, others_into_TXD)


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def compare(kernels: Any, row: Row) -> dict[str, float]:
    """Flash's milliseconds, with how far ours lie from what it gives."""
    took, expected = measure_flash(row)
    tiles = row.plan(CHOICE)
    out_TAD, log_sum_KTG, _ = kernels.attend(*row.inputs[1:], row.angles, tiles, row.scale)
    into_TXD = row.make_into()
    how = row.angles, row.angles, tiles, row.scale
    shared = kernels.attend_back(*row.inputs, out_TAD, log_sum_KTG, *how, *row.parts_of(into_TXD))
    row.put_together(shared, into_TXD)
    found = (out_TAD, into_TXD[:, : row.query_TAD.shape[1]], *shared)
    names = ("out", "query_grad", "key_grad", "value_grad")
    apart = {
        name: round(float((one.float() - other.float()).norm() / other.float().norm()), 5)
        for name, one, other in zip(names, found, expected, strict=True)
    }
    say(row=row.name, kernel="flash", milliseconds={way: round(one, 4) for way, one in took.items()}, apart=apart)
    return took


def measure_planning(row: Row) -> None:
    """On the host, once for all layers of a row."""
    started = time.perf_counter()
    for _ in range(REPEATS):
        row.plan(CHOICE)
    took = 1000 * (time.perf_counter() - started) / REPEATS
    say(row=row.name, calls=len(row.bounds) - 1, tokens=row.bounds[-1], keys=row.whole_bounds[-1],
        planning_milliseconds=round(took, 3))  # fmt: skip


def measure(options: argparse.Namespace) -> None:
    from jade.learn.layers import kernels

    started = time.monotonic()
    rows = [make_row(name, options) for name in options.rows]
    flash = {}
    for row in rows:
        flash[row.name] = compare(kernels, row)
        measure_planning(row)
    took: dict[str, dict[Blocks, dict[str, float]]] = {kernel: {} for kernel in VARIANTS}
    # Kernel by kernel in turn, so that all have been looked at when the time is up.
    most = 1 + max(map(len, VARIANTS.values()))
    for kernel, number in ((kernel, number) for number in range(most) for kernel in VARIANTS):
        variants = (getattr(CHOICE, kernel), *VARIANTS[kernel])
        if number >= len(variants) or time.monotonic() - started > options.seconds:
            continue
        blocks = variants[number]
        try:
            choice = replace(CHOICE, **{kernel: blocks})
            times = {row.name: milliseconds_of(work_of(kernels, row, kernel, choice)) for row in rows}
        except Exception as error:  # one that does not fit says nothing about the others
            say(kernel=kernel, blocks=asdict(blocks), error=f"{type(error).__name__}: {error}"[:200])
            continue
        took[kernel][blocks] = times
        say(kernel=kernel, blocks=asdict(blocks), milliseconds={name: round(one, 4) for name, one in times.items()},
            chosen=blocks == getattr(CHOICE, kernel))  # fmt: skip
    for names in ([row.name] for row in rows):
        say_best(took, flash, names)
    say_best(took, flash, [row.name for row in rows])


def say_best(
    took: dict[str, dict[Blocks, dict[str, float]]], flash: dict[str, dict[str, float]], names: list[str]
) -> None:
    """Over one row, or the sum over several."""
    totals = {
        kernel: {blocks: sum(times[name] for name in names) for blocks, times in tried.items()}
        for kernel, tried in took.items()
        if tried
    }
    best = {kernel: min(tried, key=lambda blocks: tried[blocks]) for kernel, tried in totals.items()}
    ours = {kernel: round(totals[kernel][blocks], 4) for kernel, blocks in best.items()}
    theirs = {way: round(sum(flash[name][way] for name in names), 4) for way in ("forward", "backward")}
    say(rows=names, best={kernel: asdict(blocks) for kernel, blocks in best.items()}, milliseconds=ours, flash=theirs,
        times_as_fast=round(sum(theirs.values()) / sum(ours.values()), 2) if ours else None)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536, help="of a row, counted once where they are shared")
    parser.add_argument("--prompt", type=int, default=500, help="tokens of a prompt, give or take a fifth")
    parser.add_argument("--rollouts", type=int, default=8, help="calls of one prompt")
    parser.add_argument("--heads", type=int, default=9, help="of queries")
    parser.add_argument("--keys", type=int, default=3, help="heads of keys and values")
    parser.add_argument("--size", type=int, default=64, help="width of a head")
    parser.add_argument("--rows", nargs="+", choices=["shared", "whole"], default=["shared", "whole"])
    parser.add_argument("--seconds", type=float, default=45.0, help="after which no further variant is begun")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "This compares kernels of a GPU, and there is none.\n")
    measure(options)


if __name__ == "__main__":
    main()
