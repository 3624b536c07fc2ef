"""Measuring a team: methods on benchmarks, their records, a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jade.api.asking import Spend
from jade.api.loop import run_to_end
from jade.api.settings import Settings, config_of
from jade.backbone.trained import as_trained
from jade.config import Config

if TYPE_CHECKING:
    from rich.console import Console

    from jade.evaluate.run import Request, Session


Folders: TypeAlias = str | Path | Sequence[str | Path]
"""One folder of a run, or several."""


def measure(
    benchmarks: str | Sequence[str],
    methods: str | Sequence[str] = "jade",
    *,
    out: str | Path,
    data: str | Path = "",
    index: str | Path | None = None,
    model: str | Path | None = None,
    effort: Spend | None = None,
    split: str = "test",
    limit: int | None = None,
    config: Config | str | Path | None = None,
    settings: Settings | None = None,
) -> dict[str, dict[str, float]]:
    """Measure methods on benchmarks: F1 (0 to 1) by benchmark and method. What `jade eval` does; killed and called
    again, it goes on where it was. A benchmark is a name or a .jsonl file of one's own questions."""
    from rich.console import Console

    from jade.evaluate.run import Request

    named = {"retrieval.index": index, "backbone.model": model, "reward.effort": effort}
    chosen = as_trained(config_of(config, named, settings))
    request = Request(_names(benchmarks), _names(methods), Path(out), str(data), split, limit)
    session = run_request(request, chosen, Console(stderr=True))
    table: dict[str, dict[str, float]] = {}
    for cell, tally in session.tallies.items():
        table.setdefault(cell.benchmark, {})[cell.column] = tally.mean_f1
    return table


def run_request(request: Request, config: Config, console: Console) -> Session:
    """Work a request to its end, with a bar for each cell."""
    from jade.evaluate.run import evaluate
    from jade.screen.bars import CellBars

    with CellBars(console) as bars:
        return run_to_end(evaluate(request, config, listen=bars.hear))


def read_records(run: str | Path) -> list[dict[str, Any]]:
    """A row for every question that a run of `measure` has answered, with its benchmark and method.
    `pandas.json_normalize(rows)` makes a table of them."""
    from jade.evaluate.store import CellFiles, find_cells, read_run
    from jade.evaluate.store import read_records as records_in

    read_run(Path(run))
    return [
        {"benchmark": cell.benchmark, "method": cell.column, **asdict(record)}
        for cell in find_cells(Path(run))
        for record in records_in(CellFiles(Path(run), cell).records)
    ]


def report(runs: Folders | Mapping[str, Folders], out: str | Path, *, baseline: str | None = None) -> Path:
    """Write a report of finished runs: tables with intervals and paired tests, pictures, example traces. With names
    ({"joint": ["a", "b"], "warm": "c"}) the runs of a name are pooled and names are compared. Gives its HTML page."""
    from jade.evaluate.arms import Arm
    from jade.evaluate.report import write_report

    if isinstance(runs, Mapping):
        arms = [Arm(name, tuple(_listed(folders))) for name, folders in runs.items()]
    else:
        arms = [Arm("", (folder,)) for folder in _listed(runs)]
    written = write_report(arms, Path(out), baseline=baseline)
    return next(path for path in written if path.suffix == ".html")


def _listed(folders: Folders) -> list[Path]:
    return list(map(Path, [folders] if isinstance(folders, str | Path) else folders))


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
