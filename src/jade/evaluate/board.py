"""Finished runs as a board: a column for each method, a cell for each benchmark, and the numbers of a cell.

Reads only what runs have written. Methods of the same name from several runs are told apart by their run's folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jade.errors import TraceUnreadable
from jade.evaluate.benchmarks import BENCHMARKS
from jade.evaluate.methods import METHODS
from jade.evaluate.record import Record
from jade.evaluate.statistics import Floats
from jade.evaluate.store import Cell, CellFiles, Timing, find_cells, read_records, read_run, read_timings


@dataclass(frozen=True)
class CellResult:
    """What one method did on one benchmark."""

    cell: Cell
    files: CellFiles
    records: Sequence[Record]
    timings: Sequence[Timing]

    def scores(self, name: str) -> Floats:
        return np.array([record.scores[name] for record in self.records])

    @cached_property
    def f1(self) -> dict[str, float]:
        """F1 by question id."""
        return {record.id: record.scores["f1"] for record in self.records}

    def cost(self, name: str) -> float:
        return float(np.mean([record.cost[name] for record in self.records]))

    @property
    def tokens(self) -> float:
        return self.cost("prompt_tokens") + self.cost("completion_tokens")

    @property
    def seconds(self) -> float:
        """Mean time from a question to its answer, among all that were in flight with it."""
        return float(np.mean([timing.seconds for timing in self.timings]))

    @property
    def questions_per_second(self) -> float:
        """Questions over the time in which the cell was being worked, all its sessions together."""
        return len(self.timings) / max(self.wall_seconds, 1e-9)

    @property
    def wall_seconds(self) -> float:
        sessions: dict[int, list[Timing]] = {}
        for timing in self.timings:
            sessions.setdefault(timing.session, []).append(timing)
        return sum(max(t.ended for t in each) - min(t.began for t in each) for each in sessions.values())

    @property
    def num_failed(self) -> int:
        return sum(record.error is not None for record in self.records)

    def answer_recall(self, k: int) -> float:
        """Share of questions for which a search had a passage with the answer among its first k."""
        ranks = [record.answer_rank for record in self.records]
        return float(np.mean([rank is not None and rank <= k for rank in ranks]))

    @property
    def title_recall(self) -> float | None:
        """Mean share of supporting pages found, over the questions that name some."""
        known = [record.title_recall for record in self.records if record.title_recall is not None]
        return float(np.mean(known)) if known else None

    @property
    def depth(self) -> float:
        return float(np.mean([record.depth for record in self.records]))

    @property
    def stopped(self) -> float:
        """Share of questions whose budget was spent early."""
        return float(np.mean([bool(record.stopped) for record in self.records]))

    def shares(self, name: str) -> dict[str, float]:
        """How the questions divide by `workflow` or `failure`, the largest first."""
        counts = Counter(getattr(record, name) or "none" for record in self.records)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return {value: count / len(self.records) for value, count in ordered}

    def malformed(self) -> dict[str, tuple[int, int]]:
        """By role: outputs that could not be read, and all outputs."""
        broken: Counter[str] = Counter()
        written: Counter[str] = Counter()
        for record in self.records:
            for role, (bad, count) in record.malformed.items():
                broken[role] += bad
                written[role] += count
        return {role: (broken[role], written[role]) for role in sorted(written)}


@dataclass(frozen=True, eq=False)
class Column:
    """One method, under one wording of the prompts, from one run."""

    label: str
    method: str
    variant: int
    run: Path
    cells: Mapping[str, CellResult]

    @property
    def is_ceiling(self) -> bool:
        """The oracle is no competitor."""
        return self.method in METHODS and not METHODS[self.method].needs_model

    def over(self, benchmarks: Sequence[str]) -> list[CellResult] | None:
        """The cells of all these benchmarks, or None where one is missing."""
        found = [self.cells[name] for name in benchmarks if name in self.cells]
        return found if len(found) == len(benchmarks) else None


@dataclass(frozen=True)
class Board:
    benchmarks: tuple[str, ...]
    columns: tuple[Column, ...]
    """The shipped wording of the prompts."""
    variants: tuple[Column, ...] = ()
    """Paraphrased prompts."""
    runs: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)

    def column(self, label: str) -> Column | None:
        return next((column for column in self.columns if column.label == label), None)

    def wordings(self, column: Column) -> list[Column]:
        """The same method from the same run under every wording, the shipped one first."""
        return [column, *(v for v in self.variants if (v.run, v.method) == (column.run, column.method))]

    @property
    def k(self) -> int:
        """Passages a search brings; the smallest where runs differ."""
        return min(int(run["settings"]["retrieval"]["k"]) for run in self.runs.values())


def read_board(runs: Sequence[Path]) -> Board:
    """All finished questions of some runs; methods and benchmarks in the order of the published table."""
    described = {run: read_run(run) for run in runs}
    results = {run: [_result(run, cell) for cell in find_cells(run)] for run in runs}
    cells = [(run, result) for run, of_run in results.items() for result in of_run if result.records]
    cells.sort(key=lambda item: _place(item[1].cell.benchmark, list(BENCHMARKS)))
    if not cells:
        raise TraceUnreadable(f"no finished questions in {', '.join(map(str, runs))}: run jade eval first")
    benchmarks = dict.fromkeys(result.cell.benchmark for _, result in cells)
    columns = sorted(_columns(cells), key=lambda column: (_place(column.method, list(METHODS)), column.variant))
    return Board(
        tuple(benchmarks),
        tuple(column for column in columns if not column.variant),
        tuple(column for column in columns if column.variant),
        described,
    )


def _result(run: Path, cell: Cell) -> CellResult:
    files = CellFiles(run, cell)
    records = list(read_records(files.records))
    return CellResult(cell, files, records, list(read_timings(files.timings))[: len(records)])


def _columns(cells: Sequence[tuple[Path, CellResult]]) -> list[Column]:
    grouped: dict[tuple[Path, str, int], dict[str, CellResult]] = {}
    for run, result in cells:
        grouped.setdefault((run, result.cell.method, result.cell.variant), {})[result.cell.benchmark] = result
    owners = Counter(method for _, method, variant in grouped if variant == 0)
    names = Counter(run.name for run in {run for run, _, _ in grouped})
    called = {run: run.name if names[run.name] == 1 else str(run) for run, _, _ in grouped}
    return [
        Column(f"{method} ({called[run]})" if owners[method] > 1 else method, method, variant, run, found)
        for (run, method, variant), found in grouped.items()
    ]


def _place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)
