"""Shards at scale: time to build, disk, memory and latency by the number of passages, and what they say of 21 million.

    python benchmarks/shards.py [--sizes 200000 1000000] [--shard-size 500000] [--out FILE.json]

The text is synthetic: 60 words a passage (what 100 words of an encyclopaedia keep without stop words), drawn from
twelve million by Zipf's law in its two regimes (a chance of 1 / rank for the ten thousand commonest, falling faster
behind them), so that rare words grow in number as they do there. Every figure is measured in a process of its own.
Growth is fitted through all sizes, as a power of the number of passages or as a line; what it says beyond the largest
size measured is extrapolated, and is named so. The sizes of docs/results.md take an hour on a busy machine:
`--sizes 200000 1000000 5000000`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jade.config import RetrievalConfig
from jade.retrieval.open import open_retriever
from jade.retrieval.shards_build import build_shards
from jade.types import Passage

WORDS_PER_PASSAGE = 60
VOCABULARY = 12_000_000
COMMON = 10_000
TAIL = 1.6
"""The chance of a word beyond the common ones falls with this power of its rank."""
WIKIPEDIA = 21_015_324
"""Passages of 100 words in the Wikipedia dump that open-domain benchmarks search."""
NUM_QUERIES = 200
WORDS_PER_QUERY = 8
COMMONEST = 64
"""Queries hold none of the commonest words, as questions lose their stop words."""


def zipf_passages(count: int, seed: int = 0) -> Iterator[Passage]:
    draw = np.random.default_rng(seed)
    for first in range(0, count, 10_000):
        ranks = zipf_ranks(draw, (min(10_000, count - first), WORDS_PER_PASSAGE))
        for offset, row in enumerate(ranks.tolist()):
            number = first + offset
            yield Passage(f"p{number}", "", " ".join(map("w%x".__mod__, row)), f"z:{number}")


def zipf_ranks(draw: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Ranks by their chance."""
    return np.searchsorted(cumulative(), draw.random(shape)) + 1


@cache
def cumulative() -> Any:
    rank = np.arange(1, VOCABULARY + 1, dtype=np.float64)
    chance = np.where(rank <= COMMON, 1 / rank, (rank / COMMON) ** -TAIL / COMMON)
    return np.cumsum(chance) / chance.sum()


def queries(seed: int = 1) -> list[str]:
    ranks = zipf_ranks(np.random.default_rng(seed), (NUM_QUERIES, 4 * WORDS_PER_QUERY))
    kept = [[rank for rank in row if rank > COMMONEST][:WORDS_PER_QUERY] for row in ranks.tolist()]
    return [" ".join(map("w%x".__mod__, row)) for row in kept]


def build(count: int, shard_size: int, folder: Path) -> dict[str, Any]:
    cumulative()
    cpu = time.process_time()
    sample = sum(1 for _ in zipf_passages(min(count, 20_000)))
    making = (time.process_time() - cpu) * count / sample
    started, cpu = time.perf_counter(), time.process_time()
    shards = build_shards(zipf_passages(count), folder, shard_size)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = sum(path.stat().st_size for path in files if path.name.startswith("passages"))
    return {
        "passages": count,
        "shards": len(shards.starts),
        "words": shards.words,
        "build_seconds": round(seconds, 1),
        "build_cpu_seconds": round(cpu_seconds - making, 1),
        "build_peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "disk_megabytes": round(sum(path.stat().st_size for path in files) / 1e6),
        "disk_text_megabytes": round(texts / 1e6),
    }


def search(count: int, shard_size: int, folder: Path) -> dict[str, Any]:
    before = memory("RssAnon")
    started = time.perf_counter()
    retriever = open_retriever(RetrievalConfig(index=str(folder), inline=True))
    opened, words = time.perf_counter() - started, memory("RssAnon") - before
    asked = queries()

    async def ask() -> list[float]:
        await retriever.search(asked[:20], 5)  # compiles, and maps the commonest lists
        times = []
        for query in asked:
            begun = time.perf_counter()
            await retriever.search([query], 5)
            times.append(time.perf_counter() - begun)
        return times

    async def close() -> None:
        await retriever.close()

    times = asyncio.run(ask())
    cpu = time.process_time()
    asyncio.run(ask())
    cpu_ms = 1000 * (time.process_time() - cpu) / (len(asked) + 20)
    asyncio.run(close())
    return {
        "open_seconds": round(opened, 2),
        "words_megabytes": round(words, 1),
        "own_megabytes": round(memory("RssAnon")),
        "mapped_megabytes": round(memory("RssFile")),
        "query_cpu_ms": round(cpu_ms, 2),
        "latency_ms_median": round(1000 * statistics.median(times), 2),
        "latency_ms_p95": round(1000 * sorted(times)[int(0.95 * len(times))], 2),
    }


MEASURES = {"build": build, "search": search}


def memory(kind: str) -> float:
    """Megabytes of this process: its own (RssAnon), or of files that it has mapped and looked at (RssFile)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{kind}:"))


def measured(count: int, shard_size: int, folder: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name in MEASURES:
        arguments = [sys.executable, __file__, "--measure", name, "--sizes", str(count)]
        arguments += ["--shard-size", str(shard_size), "--folder", str(folder)]
        done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
        figures |= json.loads(done.stdout)
    return figures


POWERS = ("words", "build_cpu_seconds", "disk_megabytes", "query_cpu_ms")
LINES = ("build_peak_megabytes", "own_megabytes", "mapped_megabytes")
"""Memory grows by the shard on top of what one process takes anyway."""


def extrapolated(rows: list[dict[str, Any]], count: int, shard_size: int) -> dict[str, Any]:
    """What growth says of `count`, by least squares: powers, and lines (of which the slope a million is given too)."""
    sizes = np.array([row["passages"] for row in rows], np.float64)
    found: dict[str, Any] = {"passages": count, "extrapolated": True, "shards": -(-count // shard_size)}
    for name in POWERS:
        power, start = np.polyfit(np.log(sizes), np.log([row[name] for row in rows]), 1)
        found |= {name: round(math.exp(start) * count**power, 1), f"{name}_power": round(power, 2)}
    for name in LINES:
        slope, start = np.polyfit(sizes, [row[name] for row in rows], 1)
        found |= {name: round(start + slope * count), f"{name}_a_million": round(slope * 1e6)}
    return found


def main() -> int:
    options = _options()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.sizes[0], options.shard_size, options.folder)))
        return 0
    rows = []
    for count in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(count, options.shard_size, Path(folder) / "shards"))
            print(json.dumps(rows[-1]), flush=True)
    about = {"shard_size": options.shard_size, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    figures = {
        "measured": rows,
        "wikipedia": extrapolated(rows, WIKIPEDIA, options.shard_size) if len(rows) > 1 else None,
        **about,
    }
    print(json.dumps(figures["wikipedia"]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000], help="passages")
    parser.add_argument("--shard-size", type=int, default=500_000, help="passages in a shard")
    parser.add_argument("--out", type=Path, default=Path("out/shards.json"), help="where the figures are written")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=sorted(MEASURES), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
