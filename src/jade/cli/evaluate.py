"""`jade eval`: methods on benchmarks, a record for every question."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import ConfigFile, Index, Model, Overrides, team_from

if TYPE_CHECKING:
    from rich.console import Console

    from jade.evaluate.run import Session

SEVEN = "nq,popqa,ambigqa,hotpotqa,2wiki,musique,bamboogle"
TABLE = "no-retrieval,vanilla-rag,rrr,bgm,mmoa-rag,adaptive-rag,search-r1,mao-arag,executors-only,jade"


def command(
    benchmark: Annotated[str, typer.Option(help=f"Names or .jsonl files, by commas; `all` is {SEVEN}.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; the same folder goes on where it was.")],
    data: Annotated[str, typer.Option(help="Folder of questions, or hub:[OWNER/NAME] for the Hugging Face hub.")] = "",
    method: Annotated[str, typer.Option(help=f"Names, by commas; `all` is {TABLE}; beside them oracle.")] = "jade",
    index: Index = None,
    model: Model = None,
    effort: Annotated[
        str | None, typer.Option(help="low, medium, high or a number; several, by commas, run one after the other.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of the benchmarks.")] = "test",
    limit: Annotated[
        int | None, typer.Option(help="At most so many questions a benchmark, the same ones always.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Questions in flight at once.")] = None,
    prompt_variants: Annotated[int, typer.Option(min=0, help="Run under so many paraphrases of the prompts too.")] = 0,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Measure teams on benchmarks. Killed and started again, it goes on where it was."""
    from rich.console import Console

    from jade.api.measuring import run_request
    from jade.evaluate.run import Request
    from jade.screen.terminal import saying_what_is_kept

    numbers = [
        f"{name}={value}" for name, value in (("seed", seed), ("eval.concurrency", concurrency)) if value is not None
    ]
    console = Console()
    given = [*numbers, *(settings or [])]
    # All of them before any work: what is wrong with the last effort is said now, and not in an hour.
    runs = [
        (team_from(config, given, index=index, model=model, effort=level), folder)
        for level, folder in places(effort, out)
    ]
    for chosen, folder in runs:
        request = Request(_names(benchmark, SEVEN), _names(method, TABLE), folder, data, split, limit, prompt_variants)
        with saying_what_is_kept(folder, "the same command"):
            session = run_request(request, chosen, console)
        print_session(session, folder, console)


def places(effort: str | None, out: Path) -> list[tuple[str | None, Path]]:
    """Each effort with the folder of its run: the folder itself for one, a folder in it for each of several."""
    levels = _names(effort or "", "")
    return [(level, out / f"effort-{level}") for level in levels] if len(levels) > 1 else [(effort, out)]


def _names(given: str, everything: str) -> tuple[str, ...]:
    """The names in a list by commas, in which `all` stands for all of them."""
    names = (everything if name.strip() == "all" else name for name in given.split(","))
    return tuple(name.strip() for name in ",".join(names).split(",") if name.strip())


def print_session(session: Session, out: Path, console: Console) -> None:
    """F1 by benchmark and method, and how busy the backbone was."""
    from rich.table import Table
    from rich.text import Text

    benchmarks = list(dict.fromkeys(cell.benchmark for cell in session.tallies))
    table = Table("F1 (%)", *benchmarks)
    for column in dict.fromkeys(cell.column for cell in session.tallies):
        tallies = {cell.benchmark: tally for cell, tally in session.tallies.items() if cell.column == column}
        table.add_row(column, *(f"{100 * tallies[name].mean_f1:.1f}" for name in benchmarks))
    console.print(table)
    for line in _wordings(session):
        console.print(line, markup=False, highlight=False)
    if session.questions:
        console.print(Text(_pace(session), style="dim"), soft_wrap=True)
    next_ = f"jade report {shlex.quote(str(out))} --out report"
    console.print(Text(f"records in {out}; next: {next_}", style="dim"), soft_wrap=True)


def _wordings(session: Session) -> Iterator[str]:
    """Mean, worst and spread of every method that ran under several wordings of its prompts."""
    from statistics import fmean, pstdev

    for method in dict.fromkeys(cell.method for cell in session.tallies):
        by_wording: dict[int, list[float]] = {}
        for cell, tally in session.tallies.items():
            if cell.method == method:
                by_wording.setdefault(cell.variant, []).append(100 * tally.mean_f1)
        means = [fmean(scores) for scores in by_wording.values()]
        if len(means) > 1:
            numbers = f"mean {fmean(means):.1f}, worst {min(means):.1f}, spread {pstdev(means):.1f}"
            yield f"{method} under {len(means)} wordings of its prompts: F1 {numbers}"


def _pace(session: Session) -> str:
    wall = session.wall_seconds
    pace = f"{session.questions} questions in {wall:.0f} s: {session.questions / wall:.2f} a second"
    busy = f", {session.calls} calls, the backbone was busy {session.busy_seconds / wall:.0%} of the time"
    return pace + busy if session.calls else pace
