"""How long adapters' gradients take: our kernels with several tile sizes, beside torch's product for the whole weight.

    python benchmarks/low_rank.py [--tokens 54000] [--rank 32] [--width 576 --feed 1536 --heads 960]

On a GPU only, within a minute or two, most of it compiling. For each product of a layer: milliseconds of a launch, the
share of the memory's bandwidth at which its inputs are read, and what the whole weight's gradient would take. Then the
same for the feed-forward part's way back, with the gradients of its adapters and without. The constants that are varied
are those of `jade/learn/layers/kernels/`, which should say what is fastest.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping

import torch
from device_profile import milliseconds_of
from torch import Tensor

BANDWIDTH = 4.8e12
"""Bytes a second, as an H200 is said to do."""
VARIANTS: tuple[Mapping[str, int], ...] = (
    {},
    {"low_rank.LEARN_WIDTH": 64},
    {"low_rank.LEARN_WIDTH": 256},
    {"low_rank.LEARN_TOKENS": 32},
    {"low_rank.LEARN_TOKENS": 128},
    {"sizes.SLOTS": 132},
    {"sizes.SLOTS": 396},
    {"gate.GATE_TOKENS": 64},
    {"gate.GATE_WIDTH": 64},
    {"gate.GATE_WIDTH": 256, "gate.GATE_TOKENS": 16},
)
"""Changes to the constants that are set."""


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    from jade.learn.layers import kernels
    from jade.learn.layers.merged import MOST_PARTS, PARTIAL_NUMBERS, product

    width, feed, num, rank = options.width, options.feed, options.tokens, options.rank
    products = {
        "qkv": (options.heads, width, 3 * rank),
        "output": (width, width, rank),
        "gate_up": (2 * feed, width, 2 * rank),
        "down": (width, feed, rank),
    }
    found = {}
    for name, (outputs, inputs, ranks) in products.items():
        parts = min(MOST_PARTS, max(1, PARTIAL_NUMBERS // ((outputs + inputs) * ranks)))
        grad_TO, input_TI, low_TN = some(num, outputs), some(num, inputs), some(num, ranks)
        above_TN, sum_PWN = some(num, inputs + ranks)[:, inputs:], torch.zeros(parts, outputs + inputs, ranks).cuda()
        took = milliseconds_of(lambda: kernels.add_low_rank(grad_TO, low_TN, input_TI, above_TN, sum_PWN))  # noqa: B023
        whole = milliseconds_of(lambda: product(grad_TO.mT, input_TI))  # noqa: B023
        floor = 2 * num * (outputs + inputs + 2 * ranks) / BANDWIDTH
        found[name] = [round(took, 4), round(1000 * floor / took, 2), round(whole, 4)]
    parts = min(MOST_PARTS, PARTIAL_NUMBERS // ((width + feed) * rank))
    grad_TF, both_TF = some(num, feed + rank)[:, :feed], some(num, 2 * feed + 2 * rank)[:, : 2 * feed]
    above_TN, sum_PWN = some(num, rank), torch.zeros(parts, width + feed, rank).cuda()
    took = milliseconds_of(lambda: kernels.gated_back_learning(grad_TF, both_TF, above_TN, sum_PWN))
    alone = milliseconds_of(lambda: kernels.gated_back(grad_TF, both_TF))
    found["gate"] = [round(took, 4), round(1000 * 2 * num * (5 * feed + rank) / BANDWIDTH / took, 2), round(alone, 4)]
    return found


def put(constants: Mapping[str, int]) -> dict[str, int]:
    """Set constants of the kernels; gives what they were."""
    before = {}
    for name, value in constants.items():
        file, constant = name.split(".")
        module = importlib.import_module(f"jade.learn.layers.kernels.{file}")
        before[name] = getattr(module, constant)
        setattr(module, constant, value)
    return before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tokens", 54000), ("rank", 32), ("width", 576), ("feed", 1536), ("heads", 960)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "This compares kernels of a GPU, and there is none.\n")

    for variant in VARIANTS:
        usual = put(variant)
        try:
            row: dict[str, object] = dict(measure(options))
        except Exception as error:  # a variant may ask for more memory than a processor has
            row = {"failed": str(error)[:200]}
        print(json.dumps({"variant": dict(variant), **row}), flush=True)
        put(usual)


if __name__ == "__main__":
    main()
