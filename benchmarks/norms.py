"""How long a norm's way back takes in a layer that learns, with several tiles.

    python benchmarks/norms.py [--tokens 180000] [--width 576]

On a GPU only, within half a minute, most of it compiling. For each number of rows that a program takes at once and each
number of warps: milliseconds of a launch and the share of the memory's bandwidth; before them the forward kernel's.
What is varied are the constants of `jade/learn/layers/kernels/norm.py`, which should say what is fastest.
"""

from __future__ import annotations

import argparse
import json
from itertools import product

import torch
from device_profile import milliseconds_of
from torch import Tensor

BANDWIDTH = 4.8e12
"""Bytes a second, as an H200 is said to do."""
ROWS, WARPS = (1, 2, 4, 8), (1, 2, 4)
BESIDE = 64
"""Columns of a product's output that belong to adapters and stand beside what is read."""


def some(num: int, width: int) -> Tensor:
    return torch.randn(num, width, device="cuda", dtype=torch.bfloat16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=180000)
    parser.add_argument("--width", type=int, default=576)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "This compares kernels of a GPU, and there is none.\n")
    from jade.learn.layers.kernels import norm

    num, width = options.tokens, options.width
    x_TH, past_TH, gain_H = some(num, width), some(num, width), some(1, width)[0]
    beside_TH = some(num, width + BESIDE)[:, :width]
    floor = 1000 * 4 * 2 * num * width / BANDWIDTH

    def back() -> object:
        return norm.norm_back(beside_TH, x_TH, gain_H, past_TH, 1e-5, with_gain=False)

    def say(took: float, **what: object) -> None:
        print(json.dumps({**what, "milliseconds": round(took, 4), "of_bandwidth": round(floor / took, 2)}), flush=True)

    say(milliseconds_of(lambda: norm.add_norm(x_TH, beside_TH, gain_H, 1e-5)), way="forward")
    say(milliseconds_of(back), way="backward, as it is set")
    for rows, warps in product(ROWS, WARPS):
        norm.NORM_BACK_NUMBERS, norm.NORM_BACK_A_WARP = rows * width, -(-rows * width // warps)
        say(milliseconds_of(back), way="backward", rows=rows, warps=warps)


if __name__ == "__main__":
    main()
