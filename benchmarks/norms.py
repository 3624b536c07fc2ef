"""How long a learning layer's norms take, with several tiles.

    python benchmarks/norms.py [--tokens 180000] [--width 576]

On a GPU only, within half a minute, most of it compiling. For each number of numbers that a program takes at once and
each number of warps: milliseconds of a launch and the share of the memory's bandwidth, forward and backward. What is
varied are the constants of `jade/learn/kernels.py`, which should say what is fastest.
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
    from jade.learn import kernels

    num, width = options.tokens, options.width
    x_TH, past_TH, gain_H = some(num, width), some(num, width), some(1, width)[0]
    beside_TH = some(num, width + BESIDE)[:, :width]
    floor = 1000 * 4 * 2 * num * width / BANDWIDTH
    ways = {
        "forward": ("NORM", lambda: kernels.add_norm(x_TH, beside_TH, gain_H, 1e-5)),
        "backward": ("NORM_BACK", lambda: kernels.norm_back(beside_TH, x_TH, gain_H, past_TH, 1e-5, with_gain=False)),
    }
    for way, (constant, work) in ways.items():
        set_now = {name: getattr(kernels, name) for name in (f"{constant}_NUMBERS", f"{constant}_WARPS")}
        found = [{"way": way, **set_now, "milliseconds": round(milliseconds_of(work), 4), "set": True}]
        for rows, warps in product(ROWS, WARPS):
            wanted = {f"{constant}_NUMBERS": rows * width, f"{constant}_WARPS": warps}
            for name, value in wanted.items():
                setattr(kernels, name, value)
            found.append({"way": way, **wanted, "milliseconds": round(milliseconds_of(work), 4)})
        for name, value in set_now.items():
            setattr(kernels, name, value)
        for row in sorted(found, key=lambda row: row["milliseconds"]):
            print(json.dumps({**row, "of_bandwidth": round(floor / row["milliseconds"], 2)}), flush=True)


if __name__ == "__main__":
    main()
