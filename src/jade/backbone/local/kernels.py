# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Kernels for a GPU that do in one launch what eager code does in ten: the element-wise work between the matrix
products of a layer, and the drawing of a token.

They round where transformers' own layers round, so log-probs stay close to a learner's. Imported on a GPU only:
Triton comes with torch's CUDA builds.

N = tokens in the row, B = requests, E = hidden width, F = feed-forward width, H = query heads, K = key-value heads,
G = H / K, D = head size, P = positions, V = vocabulary.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.backbone.local.slots import Slots

VOCABULARY_BLOCK = 2048
FEED_BLOCK = 512


def block_for(size: int) -> int:
    """A tile that holds so many; matrix units take no fewer than 16."""
    return int(max(16, triton.next_power_of_2(size)))


def add_norm(x_NE: Tensor, delta_NE: Tensor | None, weight_E: Tensor, eps: float) -> Tensor:
    """x += delta in place, and what the RMS norm makes of x."""
    out_NE = x_NE.new_empty(x_NE.shape)
    width = x_NE.shape[1]
    block = triton.next_power_of_2(width)
    delta = x_NE if delta_NE is None else delta_NE
    _add_norm[(x_NE.shape[0],)](x_NE, delta, weight_E, out_NE, eps, width, block, delta_NE is not None, num_warps=4)
    return out_NE


@triton.jit
def _add_norm(x, delta, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    place = tl.program_id(0).to(tl.int64) * WIDTH + column
    value = tl.load(x + place, mask=inside, other=0.0)
    if ADDS:
        more = tl.load(delta + place, mask=inside, other=0.0)
        # Rounded before the norm sees it: the layers of transformers norm what they have stored, too.
        value = (value.to(tl.float32) + more.to(tl.float32)).to(value.dtype)
        tl.store(x + place, value, mask=inside)
    wide = value.to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / WIDTH + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + place, wide.to(value.dtype).to(tl.float32) * scale.to(tl.float32), mask=inside)


def gated(both_NF: Tensor) -> Tensor:
    """silu(first half) * second half."""
    num_rows, width = both_NF.shape[0], both_NF.shape[1] // 2
    out_NF = both_NF.new_empty(num_rows, width)
    _gated[(num_rows, triton.cdiv(width, FEED_BLOCK))](both_NF, out_NF, width, FEED_BLOCK, num_warps=2)
    return out_NF


@triton.jit
def _gated(both, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(both + row * 2 * WIDTH + column, mask=inside, other=0.0)
    value = tl.load(both + row * 2 * WIDTH + WIDTH + column, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    opened = (wide * tl.sigmoid(wide)).to(gate.dtype).to(tl.float32)
    tl.store(out + row * WIDTH + column, opened * value.to(tl.float32), mask=inside)


def turn_and_store(
    qkv_NX: Tensor, cos_PD: Tensor, sin_PD: Tensor, kv_2SPKD: Tensor, slot_N: Tensor, position_N: Tensor, num_heads: int
) -> Tensor:
    """Rotate queries and keys by their positions; keys and values go to their slots, the queries come back."""
    num_kv, size = kv_2SPKD.shape[3:]
    q_NHD = qkv_NX.new_empty(qkv_NX.shape[0], num_heads, size)
    block = block_for(num_heads + 2 * num_kv)
    _turn_and_store[(qkv_NX.shape[0],)](
        qkv_NX, cos_PD, sin_PD, q_NHD, kv_2SPKD, slot_N, position_N,
        kv_2SPKD.stride(0), kv_2SPKD.stride(1), kv_2SPKD.stride(2),
        num_heads, num_kv, size, block, num_warps=2,
    )  # fmt: skip
    return q_NHD


@triton.jit
def _turn_and_store(
    qkv, cos, sin, query, kv, slot, position, side_stride, slot_stride, position_stride,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program is a token; heads are rows: first the H of queries, then K of keys, then K of values."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK)[:, None]
    left = tl.arange(0, D // 2)[None, :]
    inside = (head < H + 2 * K) & (left < D // 2)
    start = qkv + token * ((H + 2 * K) * D) + head * D + left
    one = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    two = tl.load(start + D // 2, mask=inside, other=0.0).to(tl.float32)
    turns = head < H + K
    place = tl.load(position + token)
    angle = place * D + left
    cos_one, cos_two = tl.load(cos + angle).to(tl.float32), tl.load(cos + angle + D // 2).to(tl.float32)
    sin_one, sin_two = tl.load(sin + angle).to(tl.float32), tl.load(sin + angle + D // 2).to(tl.float32)
    turned_one = tl.where(turns, one * cos_one - two * sin_one, one)
    turned_two = tl.where(turns, two * cos_two + one * sin_two, two)
    to_query = query + token * (H * D) + head * D + left
    tl.store(to_query, turned_one, mask=head < H)
    tl.store(to_query + D // 2, turned_two, mask=head < H)
    is_value = head >= H + K
    kv_head = tl.where(is_value, head - H - K, head - H)
    in_slot = tl.load(slot + token)  # a padded token has none
    to_slot = in_slot * slot_stride + place * position_stride
    to_kv = kv + to_slot + tl.where(is_value, side_stride, 0) + kv_head * D + left
    # A query's head is never stored, and of a padded token no head is.
    stores = inside & (head >= tl.where(in_slot >= 0, H, BLOCK))
    tl.store(to_kv, turned_one, mask=stores)
    tl.store(to_kv + D // 2, turned_two, mask=stores)


def draw_and_record(logits_BV: Tensor, row_B: Tensor, slots: Slots, eos: Tensor) -> None:
    """Draw a token a row from the whole vocabulary (or the likeliest, at temperature 0) and write down what was drawn,
    as sampling.py and Runner do in many launches. Rows that are done stay as they are."""
    size = logits_BV.shape[1]
    num_blocks = triton.cdiv(size, VOCABULARY_BLOCK)
    _draw_and_record[(logits_BV.shape[0],)](
        logits_BV, row_B, slots.seed, slots.temperature, slots.num_sampled, slots.limit, slots.done,
        slots.last_token, slots.token, slots.logp, eos, eos.shape[0], slots.num_new,
        size, VOCABULARY_BLOCK, num_blocks, block_for(num_blocks), block_for(eos.shape[0]),
        num_warps=8,
    )  # fmt: skip


@triton.jit
def _mix(word):
    """A round of splitmix64."""
    word = (word ^ (word >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
    word = (word ^ (word >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)
    return word ^ (word >> 31)


@triton.jit
def _uniform(seed, step):
    golden = tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    word = _mix(_mix(seed.to(tl.uint64, bitcast=True) + golden) + golden * (step + 1).to(tl.uint64, bitcast=True))
    return ((word >> 32).to(tl.float64) + 0.5) / 4294967296.0


@triton.jit
def _draw_and_record(
    logits, row, seed, temperature, num_sampled, limit, done, last_token, token, logp, eos, num_eos, num_new,
    V: tl.constexpr, BLOCK: tl.constexpr, NUM: tl.constexpr, NUM_BLOCK: tl.constexpr, EOS_BLOCK: tl.constexpr,
):  # fmt: skip
    """A program is a row. One pass over the logits finds every block's largest and its weight; then the block under
    which the uniform number falls is read again, and the token in it found."""
    slot = tl.load(row + tl.program_id(0))
    line = logits + tl.program_id(0).to(tl.int64) * V
    warmth = tl.load(temperature + slot)
    sharpness = tl.where(warmth == 0.0, 1.0, 1.0 / warmth)
    number, column = tl.arange(0, NUM_BLOCK), tl.arange(0, BLOCK)
    top_N = tl.full([NUM_BLOCK], -float("inf"), tl.float32)
    best_N = tl.zeros([NUM_BLOCK], tl.int32)
    sum_N = tl.zeros([NUM_BLOCK], tl.float32)
    for index in range(NUM):
        place = index * BLOCK + column
        value = tl.load(line + place, mask=place < V, other=-float("inf")).to(tl.float32) * sharpness
        top = tl.max(value, axis=0)
        here = number == index
        sum_N = tl.where(here, tl.sum(tl.exp(value - top), axis=0), sum_N)
        best_N = tl.where(here, _place_of_max(value, top, place), best_N)
        top_N = tl.where(here, top, top_N)
    highest = tl.max(top_N, axis=0)
    weight_N = sum_N * tl.exp(top_N - highest)
    # In 64 bits, as in sampling.py: sums have to stay finer than the uniform number's 32 bits.
    share_N = weight_N.to(tl.float64)
    total = tl.sum(weight_N, axis=0)
    greedy = tl.min(tl.where(top_N == highest, best_N, V), axis=0)
    step = tl.load(num_sampled + slot)
    target = _uniform(tl.load(seed + slot), step) * tl.sum(share_N, axis=0)
    block = tl.sum(((tl.cumsum(share_N, axis=0) <= target) & (number < NUM)).to(tl.int32), axis=0)
    block = tl.minimum(block, tl.max(tl.where(weight_N > 0, number, 0), axis=0))
    before = tl.sum(tl.where(number < block, share_N, 0.0), axis=0)
    place = block * BLOCK + column
    value = tl.load(line + place, mask=place < V, other=-float("inf")).to(tl.float32) * sharpness
    weight = tl.exp(value - highest)
    found = tl.sum((tl.cumsum(weight.to(tl.float64), axis=0) <= target - before).to(tl.int32), axis=0)
    # Rounding may carry the target out of the block: a token without weight is never drawn.
    found = tl.minimum(found, tl.max(tl.where(weight > 0, column, 0), axis=0))
    found = tl.maximum(found, tl.min(tl.where(weight > 0, column, BLOCK - 1), axis=0))
    chosen = tl.where(warmth == 0.0, greedy, block * BLOCK + found)
    # With logits that are no numbers nothing is found: what is read next must still lie inside the row.
    chosen = tl.minimum(chosen, V - 1)
    chosen_logp = tl.load(line + chosen).to(tl.float32) * sharpness - highest - tl.log(total)
    alive = tl.load(done + slot) == 0
    ends = tl.arange(0, EOS_BLOCK)
    ended = tl.max((tl.load(eos + ends, mask=ends < num_eos, other=-1) == chosen).to(tl.int32), axis=0) > 0
    ended = ended | (step + 1 >= tl.load(limit + slot))
    to = slot * num_new + tl.minimum(step, num_new - 1)
    tl.store(token + to, chosen.to(tl.int64), mask=alive)
    tl.store(logp + to, chosen_logp, mask=alive)
    tl.store(last_token + slot, chosen.to(tl.int64), mask=alive)
    tl.store(num_sampled + slot, step + 1, mask=alive)
    tl.store(done + slot, ended, mask=alive)


@triton.jit
def _place_of_max(value, top, place):
    """The first place where the largest value stands."""
    return tl.min(tl.where(value == top, place, 2147483647), axis=0)
