"""How long the sampler's attention takes, of prompts and of a step: our kernels in several sizes, beside flash.

    python benchmarks/local_attention.py [--slots 512] [--prompt 512] [--cached 55] [--tokens 32768]
        [--heads 9 --keys 3 --size 64]

On a GPU only, within a minute. Times are of one layer's work, by a graph of ten layers: so launches count as they do in
the sampler. What is best here is what `PROMPTS` and `STEP` in `jade/backbone/local/attention_kernels.py` should say.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor

from jade.backbone.local.attention import PIECE
from jade.backbone.local.blocks import Blocks
from jade.backbone.local.job import as_words
from jade.backbone.local.packing import Admission, Sheet, pack
from jade.types import Sampling

SIZES = {
    "prompts": ((64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2)),
    "step": ((16, 64, 4, 3), (16, 64, 4, 4), (16, 64, 2, 3), (16, 128, 4, 3), (16, 128, 8, 3), (16, 32, 2, 4)),
}
"""Rows, keys, warps and stages."""
LAYERS = 10
REPEATS = 20


def milliseconds(work: Callable[[int], object]) -> float:
    """Of one layer; each has slots of its own, so that none finds another's in the cache."""
    for layer in range(LAYERS):  # compiles, and what is captured must have run
        work(layer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(LAYERS):
            work(layer)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    for _ in range(REPEATS):
        graph.replay()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / (REPEATS * LAYERS)


def try_all(name: str, work: Callable[[Blocks, int], object]) -> None:
    for sizes in SIZES[name]:
        blocks = Blocks(*sizes)
        try:
            took = milliseconds(lambda layer, blocks=blocks: work(blocks, layer))  # type: ignore[misc]
            print(json.dumps({name: asdict(blocks), "milliseconds": round(took, 4)}), flush=True)
        except Exception as error:  # one that does not fit says nothing about the others
            print(json.dumps({name: asdict(blocks), "error": f"{type(error).__name__}: {error}"[:200]}), flush=True)


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def measure(options: argparse.Namespace) -> None:
    from jade.backbone.local import attention_kernels as kernels
    from jade.backbone.local.kernels import turn_and_store

    num_positions, scale = options.prompt + 128, options.size**-0.5
    kv = some(LAYERS, 2, options.slots, num_positions, options.keys, options.size)
    number = min(options.slots, options.tokens // (options.prompt - options.cached))
    row = as_words(range(options.prompt))
    admitted = [Admission(slot, row, options.cached, 48, Sampling()) for slot in range(number)]
    words, shape = pack(admitted, num_positions)
    bounds_3C = Sheet.of(torch.from_numpy(words).cuda(), shape).bounds_3C
    q_NHD = some(shape.num_tokens, options.heads, options.size)
    ends_q, starts_k, seen = bounds_3C

    def flash(layer: int) -> Tensor:
        keys, values = kv[layer].flatten(1, 2)
        out: Tensor = torch.ops.aten._flash_attention_forward(
            q_NHD, keys, values, ends_q, starts_k, PIECE, num_positions, 0.0, True, False, scale=scale,
            seqused_k=seen[:-1],
        )[0]  # fmt: skip
        return out

    real = slice(number * (options.prompt - options.cached))
    gap = kernels.attend_prompts(q_NHD, kv[0], bounds_3C, PIECE, scale)[real].float() - flash(0)[real].float()
    far = float(gap.abs().max())
    print(json.dumps({"prompts": "flash", "milliseconds": round(milliseconds(flash), 4), "largest_gap": round(far, 4)}))
    try_all("prompts", lambda blocks, layer: kernels.attend_prompts(q_NHD, kv[layer], bounds_3C, PIECE, scale, blocks))
    qkv_BX = some(options.slots, (options.heads + 2 * options.keys) * options.size)
    cos_PD, sin_PD = some(num_positions, options.size), some(num_positions, options.size)
    position_B = torch.full((options.slots,), options.prompt + 24, device="cuda")
    done_S, slot_B = torch.zeros_like(position_B, dtype=torch.bool), torch.arange(options.slots, device="cuda")

    def only_turn(layer: int) -> Tensor:
        return turn_and_store(qkv_BX, cos_PD, sin_PD, kv[layer], slot_B, position_B, options.heads)

    about = qkv_BX, cos_PD, sin_PD
    print(json.dumps({"step": "turning and storing alone", "milliseconds": round(milliseconds(only_turn), 4)}))
    try_all(
        "step",
        lambda blocks, layer: kernels.attend_one(
            *about, kv[layer], position_B, done_S, options.heads, scale, blocks
        ),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt")
    parser.add_argument("--cached", type=int, default=55, help="of these, how many are in the slots before")
    parser.add_argument("--tokens", type=int, default=32768, help="read at once")
    parser.add_argument("--heads", type=int, default=9, help="of queries")
    parser.add_argument("--keys", type=int, default=3, help="heads of keys and values")
    parser.add_argument("--size", type=int, default=64, help="width of a head")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "This compares kernels of a GPU, and there is none.\n")
    with torch.inference_mode():
        measure(options)


if __name__ == "__main__":
    main()
