"""The paper's Figures 3 and 4 for one run: outcome and turns over the iterations, and the mix of workflows; and which
kinds of questions are split.

Several runs, such as seeds and their controls, are also drawn side by side: what the team and what a call earns, and
how many turns a question takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jade.errors import TraceUnreadable
from jade.learn.monitor.journal import last_of_each, read_journal

NUM_PLANS = 6
"""Workflows with an area of their own; the rest are one."""
WINDOW = 5
"""Iterations that the thick line is a mean of."""
FORMATS = ("png", "svg")
COMPARED = {
    "reward": "reward of a question",
    "step_reward": "reward of a call, format penalty included",
    "rounds": "turns a question",
}
"""What runs are compared by, with the title of its panel."""

Rows = Sequence[dict[str, Any]]


def plot_runs(runs: Sequence[Path], out: Path) -> list[Path]:
    """The pictures of one run, or of several the one picture that compares them, each as PNG and SVG. Runs are called
    by their folder, in full where two have the same name."""
    if len(runs) == 1:
        return plot_run(runs[0], out)
    times = Counter(run.name for run in runs)
    rows = {run.name if times[run.name] == 1 else str(run): _iterations(run) for run in runs}
    out.mkdir(parents=True, exist_ok=True)
    return _save(_comparison(rows), out / "runs")


def plot_run(run: Path, out: Path) -> list[Path]:
    """Write the pictures of a run: where nobody chose between workflows, or a single dataset was learned from, there is
    none of that."""
    rows = _iterations(run)
    out.mkdir(parents=True, exist_ok=True)
    dev = last_of_each(read_journal(run, "dev"))
    figures = {"outcome": _outcome_and_turns(rows, dev)}
    if top_plans(rows):
        figures["workflows"] = _workflows(rows)
    if datasets := split_datasets(rows):
        figures["splits"] = _splits(rows, dev, datasets)
    return [path for name, figure in figures.items() for path in _save(figure, out / name)]


def _iterations(run: Path) -> list[dict[str, Any]]:
    rows = last_of_each(read_journal(run, "iteration"))
    if not rows:
        raise TraceUnreadable(f"{run} has no finished iteration yet; nothing to draw")
    return rows


def _outcome_and_turns(rows: Rows, dev: Rows) -> Any:
    figure, (left, right) = _subplots(2)
    for axes, names in ((left, ("outcome", "reward")), (right, ("rounds", "retrievals"))):
        for name, colour in zip(names, ("C0", "C1"), strict=True):
            _draw(axes, rows, name, colour, name, dev)
        axes.set_xlabel("iteration")
        axes.legend(frameon=False)
    left.set_title("outcome and reward" + (", dots: dev" if dev else ""))
    right.set_title("turns and retrievals a question")
    return figure


def _comparison(runs: Mapping[str, Rows]) -> Any:
    """Runs that did not learn (a step size of 0) are grey; seeds of one setting share a colour."""
    figure, panels = _subplots(len(COMPARED))
    learned = 0
    for setting, seeds in _by_setting(runs).items():
        grey = is_control(seeds[0])
        colour = "0.55" if grey else f"C{learned}"
        learned += not grey
        for axes, quantity in zip(panels, COMPARED, strict=True):
            if len(seeds) == 1:
                _draw(axes, seeds[0], quantity, colour, setting)
            else:
                _draw_seeds(axes, seeds, quantity, colour, f"{setting}, mean of {len(seeds)} runs")
    for axes, title in zip(panels, COMPARED.values(), strict=True):
        axes.set(xlabel="iteration", title=title)
    panels[0].legend(frameon=False)
    return figure


def _by_setting(runs: Mapping[str, Rows]) -> dict[str, list[Rows]]:
    """The seeds of each setting; runs that do not learn stand alone."""
    found: dict[str, list[Rows]] = {}
    for name, rows in runs.items():
        found.setdefault(name if is_control(rows) else setting_of(name), []).append(rows)
    return found


def setting_of(name: str) -> str:
    """A run's name without the number of its seed: `joint-0` and `joint-1` are both `joint`."""
    stem, _, number = name.rpartition("-")
    return stem if stem and number.isdigit() else name


def is_control(rows: Rows) -> bool:
    return all(row.get("learning_rate") == 0 for row in rows)


def _workflows(rows: Rows) -> Any:
    figure, (axes,) = _subplots(1)
    plans = top_plans(rows)
    shares = [[row.get(f"plan/{plan}", 0.0) for row in rows] for plan in plans]
    rest = [max(0.0, 1 - sum(column)) for column in zip(*shares, strict=True)]
    steps = [row["iteration"] for row in rows]
    axes.stackplot(steps, *map(smooth, [*shares, rest]), labels=[*plans, "others"], alpha=0.85)
    axes.set(
        xlabel="iteration", ylabel="share of the questions", ylim=(0, 1), title="workflows chosen for the questions"
    )
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _splits(rows: Rows, dev: Rows, datasets: Sequence[str]) -> Any:
    """Which kinds of questions the planner splits: where it learned to tell them apart, the lines part."""
    figure, (axes,) = _subplots(1)
    for number, dataset in enumerate(datasets):
        _draw(axes, rows, f"split/{dataset}", f"C{number}", dataset, dev)
    axes.set(xlabel="iteration", ylabel="share of the questions", ylim=(-0.02, 1.02))
    axes.set_title("questions that are split" + (", dots: dev" if dev else ""))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _draw(axes: Any, rows: Rows, name: str, colour: str, label: str | None, dev: Rows = ()) -> None:
    """A figure over the iterations: thin as it was, thick as a mean, and on dev as dots."""
    steps, values = _line(rows, name)
    axes.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
    axes.plot(steps, smooth(values), color=colour, label=label)
    axes.plot(*_line(dev, name), "o", color=colour, markersize=4)


def _draw_seeds(axes: Any, seeds: Sequence[Rows], name: str, colour: str, label: str) -> None:
    """The same figure of several runs: thin each by itself, thick their mean where all of them have come."""
    lines = [dict(zip(*_line(rows, name), strict=True)) for rows in seeds]
    for line in lines:
        axes.plot(list(line), smooth(list(line.values())), color=colour, alpha=0.25, linewidth=1)
    # Runs of one setting may have come to different points: beyond the shortest a mean would be of other runs.
    steps = [step for step in lines[0] if all(step in line for line in lines)]
    means = [sum(line[step] for line in lines) / len(lines) for step in steps]
    axes.plot(steps, smooth(means), color=colour, label=label)


def _line(rows: Rows, name: str) -> tuple[list[int], list[float]]:
    """The iterations in which a figure was taken, and the figure."""
    taken = [(row["iteration"], row[name]) for row in rows if name in row]
    return [step for step, _ in taken], [value for _, value in taken]


def split_datasets(rows: Rows) -> list[str]:
    """The datasets that a run was trained on, where there are several."""
    return sorted({name.removeprefix("split/") for row in rows for name in row if name.startswith("split/")})


def top_plans(rows: Rows) -> list[str]:
    """The workflows with the largest share over the whole run."""
    totals: dict[str, float] = {}
    for row in rows:
        for name, share in row.items():
            if name.startswith("plan/"):
                totals[name.removeprefix("plan/")] = totals.get(name.removeprefix("plan/"), 0.0) + share
    return sorted(totals, key=lambda plan: (-totals[plan], plan))[:NUM_PLANS]


def smooth(values: Sequence[float]) -> list[float]:
    """The mean of each value and the ones just before it."""
    windows = [values[max(0, place - WINDOW + 1) : place + 1] for place in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _subplots(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * count, 3.6), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.xaxis.get_major_locator().set_params(integer=True)
    return figure, axes


def _save(figure: Any, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths
