"""The attention kernels against a plain formula in float64, call by call.

In float32 by Triton's interpreter (`make kernel-test`), and in bfloat16 by a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from math import log
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from jade.backbone.local.blocks import Blocks
from jade.learn.layers.tiles import CHOICE, Choice, Spans, plan_tiles
from triton_runs import DEVICE, INTERPRETS, mend_dots, need_triton

SMALL = Choice(forward=Blocks(16, 16, 4, 2), to_queries=Blocks(16, 32, 4, 2), to_keys=Blocks(32, 16, 4, 2))
"""Blocks that even short calls fill several of; rows and keys of different sizes."""
WIDTH = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
Calls = tuple[tuple[int, int], ...]
"""Queries and keys of each."""
CALLS: dict[str, Calls] = {
    "shared prompts": ((70, 70), (21, 83), (40, 102), (7, 69)),
    "whole calls": ((64, 64), (33, 33), (16, 16), (50, 50)),
    "single tokens": ((1, 1), (1, 40), (1, 1), (1, 64), (1, 65)),
    "no multiples of blocks": ((17, 17), (13, 47), (31, 31), (5, 101)),
    "calls of many blocks": ((150, 150), (3, 260)),
    "a call that adds nothing": ((20, 20), (0, 20), (4, 24)),
}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    need_triton()
    mend_dots(monkeypatch)
    from jade.learn.layers import kernels

    return kernels


def bounds_of(calls: Calls) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bounds, whole_bounds = ((0, *accumulate(sizes)) for sizes in zip(*calls, strict=True))
    return bounds, whole_bounds


def some_inputs(
    calls: Calls, num_keys: int, group: int, size: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradient, queries, keys and values; the last two are parts of one tensor, as in a layer."""
    generator = torch.Generator().manual_seed(7)
    num_queries, num_whole = (bounds[-1] for bounds in bounds_of(calls))

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

    both_SXD = some(num_whole, 2 * num_keys, size)
    query_TAD, grad_TAD = some(num_queries, num_keys * group, size), some(num_queries, num_keys * group, size)
    return grad_TAD, query_TAD, both_SXD[:, :num_keys], both_SXD[:, num_keys:]


def formula(
    grad_TAD: Tensor, query_TAD: Tensor, key_SKD: Tensor, value_SKD: Tensor, calls: Calls, scale: float
) -> tuple[Tensor, ...]:
    """What is seen, the weights' logarithmic sums, and the three gradients, by autograd."""
    query, key, value = (one.detach().double().requires_grad_() for one in (query_TAD, key_SKD, value_SKD))
    group = query.shape[1] // key.shape[1]
    out, log_sums = [], []
    for (start, end), (at, to) in zip(*map(pairwise, bounds_of(calls)), strict=True):
        of_key, of_value = (one[at:to].repeat_interleave(group, 1) for one in (key, value))
        score_AQS = torch.einsum("qad,sad->aqs", query[start:end], of_key) * scale
        before = to - at - (end - start)
        seen_QS = torch.ones(score_AQS.shape[1:], dtype=torch.bool, device=key.device).tril(before)
        score_AQS = score_AQS.masked_fill(~seen_QS, float("-inf"))
        out.append(torch.einsum("aqs,sad->qad", score_AQS.softmax(2), of_value))
        log_sums.append(score_AQS.logsumexp(2).unflatten(0, (-1, group)).transpose(1, 2))
    whole = torch.cat(out)
    grads = torch.autograd.grad(whole, (query, key, value), grad_TAD.double())
    return whole.detach(), torch.cat(log_sums, 1).detach() / log(2), *grads


def alone_of(calls: Calls) -> list[int]:
    """The first key of each call that neither the call before it nor the one behind it has."""
    shared = [whole - added for added, whole in calls]
    return [max(one, after) for one, after in zip(shared, [*shared[1:], 0], strict=True)]


def angles_of(query_TAD: Tensor) -> tuple[Tensor, Tensor]:
    """Of a token a row; as narrow as the queries, and exactly a cosine and a sine nevertheless."""
    num, half = len(query_TAD), query_TAD.shape[2] // 2
    way_TE = (torch.arange(num)[:, None] + torch.arange(half)[None, :]).to(query_TAD.device) % 4
    quarter = torch.tensor([1.0, 0.0, -1.0, 0.0]).to(query_TAD)
    return quarter[way_TE], quarter[(way_TE + 3) % 4]


def turn(heads_TXD: Tensor, cos_TE: Tensor, sin_TE: Tensor, *, way: float) -> Tensor:
    one, two = heads_TXD.chunk(2, -1)
    cos, sin = cos_TE[:, None], way * sin_TE[:, None]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


def run_kernels(
    kernels: ModuleType, inputs: tuple[Tensor, ...], calls: Calls, scale: float, choice: Choice
) -> tuple[Tensor, ...]:
    grad_TAD, query_TAD, key_SKD, value_SKD = inputs
    group = query_TAD.shape[1] // key_SKD.shape[1]
    bounds, whole_bounds = bounds_of(calls)
    tiles = plan_tiles(bounds, whole_bounds, group, DEVICE, choice)
    angles = angles_of(query_TAD)
    heads_TAD = turn(query_TAD, *angles, way=-1.0)
    out_TAD, log_sum_KTG, turned_TAD = kernels.attend(heads_TAD, key_SKD, value_SKD, angles, tiles, scale)
    num_heads, num_keys = query_TAD.shape[1], key_SKD.shape[1]
    into_TXD = torch.full((len(query_TAD), num_heads + 2 * num_keys, key_SKD.shape[2]), float("nan")).to(query_TAD)
    seen = turned_TAD, key_SKD, value_SKD, out_TAD, log_sum_KTG
    into = into_TXD.split_with_sizes((num_heads, 2 * num_keys), 1)
    shared = kernels.attend_back(grad_TAD, *seen, angles, angles, tiles, scale, *into)
    # Together again, as the formula gives them: each key and value has its gradient in one of two places.
    query_grad_TAD, key_TKD, value_TKD = into_TXD.split_with_sizes((num_heads, num_keys, num_keys), 1)
    own = turn(key_TKD, *angles, way=1.0), value_TKD
    for whole_SKD, own_TKD in zip(shared, own, strict=True):
        for end, (at, to), alone in zip(bounds[1:], pairwise(whole_bounds), alone_of(calls), strict=True):
            own_from = min(alone, to - at)
            whole_SKD[at + own_from : to] = own_TKD[end - (to - at - own_from) : end]
    return out_TAD, log_sum_KTG, turn(query_grad_TAD, *angles, way=1.0), *shared


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody wrote to is not a number."""

    def poisoned(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def made(*how: Any, **also: Any) -> Tensor:
            empty = make(*how, **also)
            return empty.fill_(float("nan")) if empty.is_floating_point() else empty

        return made

    monkeypatch.setattr(Tensor, "new_empty", poisoned(Tensor.new_empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))


def assert_close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    names = ("out", "log sum", "query grad", "key grad", "value grad")
    for name, one, other in zip(names, found, expected, strict=True):
        assert bool(one.isfinite().all()), name
        assert float((one.double() - other).norm()) <= tolerance * float(other.norm()), name


@pytest.mark.parametrize(("group", "size"), [(3, 64), (1, 32), (3, 8), (7, 16)])
@pytest.mark.parametrize("kind", CALLS)
def test_attention_follows_its_formula(
    kernels: ModuleType, kind: str, group: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = some_inputs(CALLS[kind], 2, group, size, WIDTH)
    expected = formula(*inputs, CALLS[kind], size**-0.5)
    poison(monkeypatch)
    found = run_kernels(kernels, inputs, CALLS[kind], size**-0.5, SMALL)
    assert found[0].dtype == WIDTH
    assert_close(found, expected, TOLERANCE[WIDTH])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_keys", "group"), [(3, 3), (2, 7)], ids=["SmolLM2-135M", "Qwen2.5-0.5B"])
def test_attention_with_the_blocks_of_a_real_update(
    kernels: ModuleType, num_keys: int, group: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == torch.float32 and not INTERPRETS:
        pytest.skip("on a GPU the update is in bfloat16")
    calls = ((150, 150), (33, 180), (1, 148), (70, 70))
    inputs = some_inputs(calls, num_keys, group, 64, dtype)
    expected = formula(*inputs, calls, 0.125)
    poison(monkeypatch)
    assert_close(run_kernels(kernels, inputs, calls, 0.125, CHOICE), expected, TOLERANCE[dtype])


def run_asked(
    kernels: ModuleType, inputs: tuple[Tensor, ...], calls: Calls, asked: Spans, choice: Choice
) -> tuple[Tensor, ...]:
    """Only some of the row's tokens look: what they see, the gradients at all queries, and the others' as they come."""
    grad_TAD, query_TAD, key_SKD, value_SKD = inputs
    num_heads, num_keys = query_TAD.shape[1], key_SKD.shape[1]
    token_Q = torch.cat([torch.arange(*span) for span in asked]).to(DEVICE)
    tiles = plan_tiles(*bounds_of(calls), num_heads // num_keys, DEVICE, choice, asked)
    angles = angles_of(query_TAD)
    of_queries = angles[0][token_Q], angles[1][token_Q]
    heads_QAD = turn(query_TAD[token_Q], *of_queries, way=-1.0)
    seen = kernels.attend(heads_QAD, key_SKD, value_SKD, of_queries, tiles, 0.2)
    query_into_QAD = torch.full_like(heads_QAD, float("nan"))
    others_into_TXD = torch.full_like(query_TAD, float("nan"))[:, :1].repeat(1, 2 * num_keys, 1)
    shared = kernels.attend_back(
        *(grad_TAD[token_Q], seen[2], key_SKD, value_SKD, *seen[:2]),
        *(of_queries, angles, tiles, 0.2, query_into_QAD, others_into_TXD),
    )
    query_grad_TAD = torch.zeros_like(query_TAD).index_copy_(0, token_Q, query_into_QAD)
    return seen[0], query_grad_TAD, others_into_TXD, *shared


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("kind", ["shared prompts", "no multiples of blocks", "a call that adds nothing"])
def test_only_those_who_are_asked_look(
    kernels: ModuleType, kind: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have a gradient of zero at what they see, and so none at their queries; keys and values are all there."""
    calls = CALLS[kind]
    bounds, whole_bounds = bounds_of(calls)
    grad_TAD, *seen = some_inputs(calls, 2, group, 32, WIDTH)
    asked = [(max(start, end - 5 - start % 3), max(start, end - 1)) for start, end in pairwise(bounds)]
    token_Q = torch.cat([torch.arange(*span) for span in asked]).to(DEVICE)
    inputs = torch.zeros_like(grad_TAD).index_copy_(0, token_Q, grad_TAD[token_Q]), *seen
    poison(monkeypatch)
    everyone = [(start, end) for start, end in pairwise(bounds)]
    expected = run_asked(kernels, inputs, calls, everyone, SMALL)
    found = run_asked(kernels, inputs, calls, asked, SMALL)
    alone = [min(one, to - at) for one, (at, to) in zip(alone_of(calls), pairwise(whole_bounds), strict=True)]
    parts = list(zip(bounds[1:], pairwise(whole_bounds), alone, strict=True))
    shared_S = torch.cat([torch.arange(at, at + one) for _, (at, _), one in parts])
    own_T = torch.cat([torch.arange(end - (to - at - one), end) for end, (at, to), one in parts])
    assert len(own_T) + len(shared_S) == whole_bounds[-1]
    pairs = [
        (found[0], expected[0][token_Q]),
        (found[1], expected[1]),
        (found[2][own_T], expected[2][own_T]),
        *((one[shared_S], other[shared_S]) for one, other in zip(found[3:], expected[3:], strict=True)),
    ]
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=TOLERANCE[WIDTH], rtol=TOLERANCE[WIDTH])


def test_calls_do_not_hear_their_neighbours(kernels: ModuleType) -> None:
    """Not even where these are not numbers."""
    calls = ((20, 20), (9, 37), (18, 50))
    inputs = some_inputs(calls, 1, 3, 32, WIDTH)
    expected = run_kernels(kernels, inputs, calls, 0.2, SMALL)
    bounds = bounds_of(calls)
    here = [slice(*bound[1:3]) for bound in (bounds[0], bounds[0], bounds[1], bounds[1])]
    loud = []
    for one, part in zip(inputs, here, strict=True):
        noise = torch.full_like(one, float("nan"))
        noise[part] = one[part]
        loud.append(noise)
    found = run_kernels(kernels, tuple(loud), calls, 0.2, SMALL)
    assert torch.equal(found[1][:, here[0]], expected[1][:, here[0]])
    for number, part in ((0, here[0]), (2, here[0]), (3, here[2]), (4, here[2])):
        assert torch.equal(found[number][part], expected[number][part])


def test_scores_of_any_size_are_borne(kernels: ModuleType) -> None:
    """Weights are taken relative to the greatest."""
    calls = ((40, 40), (5, 70))
    grad_TAD, query_TAD, key_SKD, value_SKD = some_inputs(calls, 1, 3, 32, WIDTH)
    inputs = grad_TAD, query_TAD * 30, key_SKD, value_SKD
    expected = formula(*inputs, calls, 1.0)
    assert_close(run_kernels(kernels, inputs, calls, 1.0, SMALL), expected, 3 * TOLERANCE[WIDTH])


def test_attention_repeats_itself(kernels: ModuleType) -> None:
    calls = CALLS["shared prompts"]
    inputs = some_inputs(calls, 1, 3, 32, WIDTH)
    one, other = (run_kernels(kernels, inputs, calls, 0.2, SMALL) for _ in range(2))
    assert all(map(torch.equal, one, other))
