#!/usr/bin/env python3
"""Which of several teams to take, by what they scored on dev: its name, alone on a line.

    runs/choose.py a=out/dev/a b=out/dev/b                                    # the best
    runs/choose.py --at-most -1 a=out/a/select,out/a/whole b=out/b/select,out/b/whole

A value is the mean F1 over the benchmarks of a run of `jade eval`, each weighing the same, less that of a second run
where two are given. The highest is taken; with `--at-most` the first that is no higher than that, else the last. All
values are said on the error output. Runs on test splits are refused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean

from jade.errors import JadeError
from jade.evaluate.store import Cell, CellFiles, find_cells, read_records, read_run

Scores = dict[Cell, dict[str, float]]
"""F1 of every question, by its id, in every cell of a run."""


def read_scores(run: Path) -> Scores:
    if read_run(run)["settings"]["split"] == "test":
        sys.exit(f"{run} was run on test questions, and nothing may be chosen by those: take another split")
    scores = {cell: _read_cell(CellFiles(run, cell)) for cell in find_cells(run)}
    if not scores:
        sys.exit(f"{run} has no records: let jade eval finish first")
    return scores


def _read_cell(files: CellFiles) -> dict[str, float]:
    scores = {record.id: record.scores["f1"] for record in read_records(files.records)}
    if len(scores) != files.num_asked():
        sys.exit(f"{files.folder} has {len(scores)} of {files.num_asked()} records: let jade eval finish first")
    return scores


def check_alike(runs: dict[str, Scores]) -> None:
    """What was measured on other questions cannot be compared."""
    (first, asked), *others = ((name, {cell: set(found) for cell, found in run.items()}) for name, run in runs.items())
    for name, other in others:
        if other != asked:
            sys.exit(f"{name} was asked other questions than {first}: measure all on the same benchmarks")


def mean_f1(scores: Scores) -> float:
    """In points."""
    return 100 * mean(mean(found.values()) for found in scores.values())


def difference(means: list[float]) -> float:
    """The first, less the second where there is one."""
    return means[0] - sum(means[1:])


def chosen(values: dict[str, float], at_most: float | None) -> str:
    if at_most is None:
        return max(values, key=values.__getitem__)
    return next((name for name, points in values.items() if points <= at_most), list(values)[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teams", nargs="+", metavar="NAME=RUN[,RUN]")
    parser.add_argument("--at-most", type=float, metavar="POINTS")
    options = parser.parse_args()
    named = [each.partition("=") for each in options.teams]
    if wrong := [name for name, equals, _ in named if not equals]:
        parser.error(f"{wrong[0]}: give NAME=RUN")
    folders = {name: runs.split(",")[:2] for name, _, runs in named}
    try:
        runs = {folder: read_scores(Path(folder)) for pair in folders.values() for folder in pair}
    except JadeError as error:
        sys.exit(str(error))
    check_alike(runs)
    values = {name: difference([mean_f1(runs[folder]) for folder in pair]) for name, pair in folders.items()}
    for name, points in values.items():
        print(f"{name}: {points:.2f}", file=sys.stderr)
    print(chosen(values, options.at_most))


if __name__ == "__main__":
    main()
