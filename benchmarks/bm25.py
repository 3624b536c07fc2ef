"""BM25 over real Wikipedia passages: time to build, memory when mapped, searches a second.

    python benchmarks/bm25.py [--data DIR] [--out FILE.json]

Every figure is measured in a process of its own, so that none borrows another's memory. The data is a folder with
`corpus_*.jsonl.gz` and `<dataset>.dev.jsonl.gz` (or JADE_BENCHMARK_DATA); without it nothing is measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CORPORA = ("corpus_main.jsonl.gz", "corpus_distractors_100k.jsonl.gz")
DATASETS = ("nq", "popqa", "hotpotqa", "2wiki", "musique", "squad")
WHOLE_ROWS = 1_000_000
"""Rows are passages already: none is cut, so that the figures are of 201,677 passages."""
AIMS = {"build_seconds": 60.0, "resident_megabytes": 1000.0, "batched_queries_per_second": 500.0}


def main() -> int:
    options = _options()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.data, options.index)))
        return 0
    missing = [name for name in CORPORA if not (options.data / name).is_file()]
    if missing:
        print(f"skipped: no {missing[0]} in {options.data}; set JADE_BENCHMARK_DATA or --data")
        return 0
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": round(os.getloadavg()[0], 2)}
    with tempfile.TemporaryDirectory() as folder:
        for name in MEASURES:
            figures |= _in_own_process(name, options.data, Path(folder) / "index")
    figures["load_after"] = round(os.getloadavg()[0], 2)
    _print_table(figures)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("JADE_BENCHMARK_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=data, help="folder of corpora and questions")
    parser.add_argument("--out", type=Path, default=Path("out/bm25.json"), help="where the figures are written")
    parser.add_argument("--index", type=Path, default=Path("index"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=sorted(MEASURES), help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_own_process(measure: str, data: Path, index: Path) -> dict[str, Any]:
    print(f"measuring: {measure}", flush=True)
    arguments = [sys.executable, __file__, "--measure", measure, "--data", str(data), "--index", str(index)]
    done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def build(data: Path, index: Path) -> dict[str, Any]:
    from jade.api.documents import index_documents
    from jade.corpus.cut import Cutting

    report = index_documents([data / name for name in CORPORA], index, cutting=Cutting(row_words=WHOLE_ROWS))
    return {
        "passages": report.manifest.counts["passages"],
        "build_seconds": round(report.seconds, 1),
        "build_cpu_seconds": round(time.process_time(), 1),  # what it would take on a machine that does nothing else
        "build_peak_megabytes": round(_memory("VmHWM")),
        "index_megabytes": round(report.num_bytes / 1e6),
    }


def search(data: Path, index: Path) -> dict[str, Any]:
    """All dev questions: memory after each was asked once, then one by one, then together."""
    from jade.retrieval.bm25 import open_bm25
    from jade.retrieval.index import open_index

    questions = [row["question"] for dataset in DATASETS for row in _rows(data / f"{dataset}.dev.jsonl.gz")]
    started = time.perf_counter()
    opened = open_index(index)
    searcher = open_bm25(opened, opened.part("bm25"))
    open_seconds = time.perf_counter() - started
    started = time.perf_counter()
    searcher.find(questions[:1], 5)
    first_seconds = time.perf_counter() - started
    searcher.find(questions, 5)
    figures = {
        "open_seconds": round(open_seconds, 2),
        "first_query_seconds": round(first_seconds, 4),
        "resident_megabytes": round(_memory("VmRSS")),
        "of_which_mapped_files_megabytes": round(_memory("RssFile")),
    }
    figures["single_queries_per_second"] = _rate(lambda: [searcher.find([one], 5) for one in questions], questions)
    figures["batched_queries_per_second"] = _rate(lambda: searcher.find(questions, 5), questions)
    searcher.close()
    return figures


def recall(data: Path, index: Path) -> dict[str, Any]:
    """For how many dev questions a passage that holds an answer is among the first five."""
    from jade.retrieval.bm25 import open_bm25
    from jade.retrieval.index import open_index

    opened = open_index(index)
    searcher = open_bm25(opened, opened.part("bm25"))
    figures = {}
    for dataset in DATASETS:
        rows = list(_rows(data / f"{dataset}.dev.jsonl.gz"))
        found = searcher.find([row["question"] for row in rows], 5)
        hits = [
            any(_plain(answer) in _plain(f"{one.title} {one.text}") for one in best for answer in row["golden_answers"])
            for row, best in zip(rows, found, strict=True)
        ]
        figures[f"recall_at_5_{dataset}_dev"] = round(100 * statistics.mean(hits), 1)
    searcher.close()
    return figures


MEASURES: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"build": build, "search": search, "recall": recall}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _rate(work: Callable[[], object], questions: list[str], repeats: int = 5) -> float:
    """Median questions a second."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return round(len(questions) / statistics.median(seconds))


def _memory(field: str) -> float:
    """A figure of this process's memory, in megabytes (Linux)."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1000 if found else float("nan")


def _plain(text: str) -> str:
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _print_table(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("figure", "value", "aim", title="BM25")
    for name, value in figures.items():
        aim = AIMS.get(name)
        sign = "≥" if name.endswith("per_second") else "<"
        table.add_row(name.replace("_", " "), f"{value:,}", f"{sign} {aim:,.0f}" if aim else "")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
