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
from jade.evaluate.store import CellFiles, find_cells, read_records, read_run


def mean_f1(run: Path) -> float:
    """In points."""
    if read_run(run)["settings"]["split"] == "test":
        sys.exit(f"{run} was run on test questions, and nothing may be chosen by those: take another split")
    cells = find_cells(run)
    if not cells:
        sys.exit(f"{run} has no records: let jade eval finish first")
    return 100 * mean(_mean_of_cell(CellFiles(run, cell)) for cell in cells)


def _mean_of_cell(files: CellFiles) -> float:
    scores = [record.scores["f1"] for record in read_records(files.records)]
    if len(scores) != files.num_asked():
        sys.exit(f"{files.folder} has {len(scores)} of {files.num_asked()} records: let jade eval finish first")
    return mean(scores)


def value(runs: str) -> float:
    first, _, second = runs.partition(",")
    return mean_f1(Path(first)) - (mean_f1(Path(second)) if second else 0.0)


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
    try:
        values = {name: value(runs) for name, _, runs in named}
    except JadeError as error:
        sys.exit(str(error))
    for name, points in values.items():
        print(f"{name}: {points:.2f}", file=sys.stderr)
    print(chosen(values, options.at_most))


if __name__ == "__main__":
    main()
