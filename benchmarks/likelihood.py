"""How long log-probabilities of action tokens and their gradients take: by our kernels, and by torch's formulas.

    python benchmarks/likelihood.py [--tokens 3500] [--vocabulary 49152] [--width 576] [--blocks 1024 2048 4096]
    python benchmarks/likelihood.py --tokens 40 --vocabulary 500 --width 32     # anywhere, by formulas only

A line for each way and for what learns: only the states (adapters), the vocabulary too (all weights), the entropy as
well, or nothing (a look back). Times are medians in milliseconds. Beside them stand how far the kernels' gradient at
the states lies from that of the formulas, and the most memory that was taken. `--blocks` compares sizes of the kernels'
blocks, each a second to compile. Within a minute on a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from jade.learn.layers.likelihood import has_kernels, token_likelihood


@dataclass(frozen=True)
class Learns:
    """Who has a gradient of what."""

    states: bool = True
    vocabulary: bool = False
    entropy: bool = False


LEARNS = {
    "nothing": Learns(states=False),
    "states": Learns(),
    "all": Learns(vocabulary=True),
    "all, entropy too": Learns(vocabulary=True, entropy=True),
}
REPEATS = 20
TEMPERATURE = 0.7
SEED = 0


def milliseconds_of(work: Callable[[], object], device: torch.device) -> float:
    """The median of several, after a first one that also compiles."""
    took = []
    for _ in range(REPEATS + 1):
        _settle(device)
        started = time.perf_counter()
        work()
        _settle(device)
        took.append(1000 * (time.perf_counter() - started))
    return statistics.median(took[1:])


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Tokens:
    state_NH: Tensor
    words_VH: Tensor
    target_N: Tensor

    @classmethod
    def some(cls, options: argparse.Namespace, device: torch.device) -> Tokens:
        generator = torch.Generator(device).manual_seed(SEED)
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        state_NH = torch.randn(options.tokens, options.width, generator=generator, device=device).to(dtype)
        words_VH = 0.1 * torch.randn(options.vocabulary, options.width, generator=generator, device=device)
        target_N = torch.randint(options.vocabulary, (options.tokens,), generator=generator, device=device)
        return cls(state_NH, words_VH, target_N)

    def forward(self, learns: Learns, fuse: bool) -> Tensor:
        self.state_NH.requires_grad_(learns.states)
        self.words_VH.requires_grad_(learns.vocabulary)
        logp_N, entropy_N = token_likelihood(
            self.state_NH, self.words_VH, self.target_N,
            temperature=TEMPERATURE, entropy_gradient=learns.entropy, fuse=fuse,
        )  # fmt: skip
        return logp_N + 0.1 * entropy_N if learns.entropy else logp_N

    def both_ways(self, learns: Learns, fuse: bool) -> Tensor:
        """The gradient at the states; all that learn have theirs."""
        said_N = self.forward(learns, fuse)
        learners = [one for one in (self.state_NH, self.words_VH) if one.requires_grad]
        return torch.autograd.grad(said_N.sum(), learners)[0].float()


def measure(options: argparse.Namespace, device: torch.device) -> None:
    torch.set_float32_matmul_precision("high")  # as a policy that learns does
    tokens = Tokens.some(options, device)
    for name, learns in LEARNS.items():
        expected = tokens.both_ways(learns, fuse=False) if learns.states else None
        for block in (None, *_blocks(options, device)):
            fuse = block is not None
            if fuse:
                _load_kernels().BLOCK = block
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            figures = {"forward": milliseconds_of(partial(tokens.forward, learns, fuse), device)}
            if expected is not None:
                figures["both_ways"] = milliseconds_of(partial(tokens.both_ways, learns, fuse), device)
                found = tokens.both_ways(learns, fuse)
                figures["apart"] = float((found - expected).norm() / expected.norm())
            if device.type == "cuda":
                figures["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
            rounded = {key: round(figure, 4) for key, figure in figures.items()}
            print(json.dumps({"learns": name, "way": "kernels" if fuse else "formulas", "block": block, **rounded}))


def _load_kernels() -> Any:
    from jade.learn.layers.kernels import likelihood

    return likelihood


def _blocks(options: argparse.Namespace, device: torch.device) -> list[int]:
    if not has_kernels(device):
        return []
    blocks: list[int] = options.blocks or [_load_kernels().BLOCK]
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=3500, help="whose log-probabilities are asked for")
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--width", type=int, default=576, help="of the states")
    parser.add_argument("--blocks", type=int, nargs="+", help="sizes of the kernels' blocks, powers of two")
    measure(parser.parse_args(), torch.device("cuda" if torch.cuda.is_available() else "cpu"))


if __name__ == "__main__":
    main()
