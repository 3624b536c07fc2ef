"""What a report says, before it is Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jade.errors import ConfigError
from jade.evaluate.board import Board, Column
from jade.evaluate.effect import Change, Doubt, change_table, difference_table, f1_table, runs_table, shared_f1
from jade.evaluate.examples import Example, all_examples
from jade.evaluate.figures import pictures
from jade.evaluate.picture import Picture
from jade.evaluate.remarks import remarks
from jade.evaluate.tables import (
    Table,
    cost_table,
    failure_table,
    method_title,
    methods_table,
    plan_table,
    retrieval_table,
    robustness_table,
    scores_table,
    selection_table,
    workflow_table,
)
from jade.received import without_password

DEFAULT_BASELINE = "vanilla-rag"
DEFAULT_FOCUS = "jade"


@dataclass(frozen=True)
class Content:
    title: str
    facts: Sequence[tuple[str, str]]
    verdict: Sequence[Table]
    """What most readers came for: how good, how sure, better than what."""
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    focus: str
    examples: Sequence[tuple[str, Sequence[Example]]]


def compose(
    board: Board, doubt: Doubt, baseline: str | None = None, focus: str | None = None, changes: Sequence[str] = ()
) -> Content:
    """Everything a report says about a board."""
    against = _chosen(board, baseline, DEFAULT_BASELINE, "baseline")
    shown = _chosen(board, focus, DEFAULT_FOCUS, "examples")
    changed = [_change(board, text) for text in changes]
    verdict = [
        f1_table(board, doubt),
        *([difference_table(board, against, doubt)] if len(board.columns) > 1 else []),
        *([change_table(board, changed, doubt)] if changed else []),
        *filter(None, [runs_table(board), methods_table(board)]),
    ]
    tables = [
        cost_table(board),
        scores_table(board),
        retrieval_table(board),
        *filter(None, [selection_table(board)]),
        plan_table(board),
        workflow_table(board),
        failure_table(board),
        *filter(None, [robustness_table(board)]),
    ]
    title = f"{_count(board.columns, _noun(board))} on {_count(board.benchmarks, 'benchmark')}"
    facts = list(_facts(board, doubt))
    return Content(title, facts, verdict, tables, pictures(board, doubt), method_title(shown), all_examples(shown))


def _chosen(board: Board, named: str | None, default: str, option: str) -> Column:
    """The column that was named, or the usual one, or the first."""
    if named is None:
        return board.column(default) or board.columns[0]
    return _named(board, named, option)


def _named(board: Board, name: str, option: str) -> Column:
    found = board.column(name)
    if found is None:
        labels = ", ".join(column.label for column in board.columns)
        raise ConfigError(f"--{option} {name!r}: no such method in these runs; there are {labels}")
    return found


def _change(board: Board, text: str) -> Change:
    """The four columns of `A,B,C,D`: what A has over B, less what C has over D."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 4 or not all(names):
        raise ConfigError(f"--change {text!r}: give four names, A,B,C,D for what A has over B less what C has over D")
    a, b, c, d = (_named(board, name, "change") for name in names)
    for one, other in ((a, b), (c, d), (a, c), (b, d)):
        if one is other:
            raise ConfigError(
                f"--change {text!r}: {one.label!r} cancels itself out; put another name in one of its places, "
                "or take --baseline for a plain difference"
            )
    change = Change((a, b), (c, d))
    if not any(shared_f1(change.columns, part) for part in board.slices):
        raise ConfigError(f"--change {text!r}: no question that all four have; run jade eval on the same ones for each")
    return change


def _facts(board: Board, doubt: Doubt) -> Iterator[tuple[str, str]]:
    facts = {folder: list(map(without_password, _run_facts(run))) for folder, run in board.runs.items()}
    shared = [fact for fact in next(iter(facts.values())) if all(fact in each for each in facts.values())]
    for folder, each in facts.items():
        own = each if len(facts) == 1 else [fact for fact in each if fact not in shared]
        yield f"run “{folder.name}”", ", ".join(own) or "as the others"
    if len(facts) > 1:
        yield "all runs", ", ".join(shared)
    yield "versions", "; ".join(dict.fromkeys(_versions(run) for run in board.runs.values()))
    sizes = {name: {len(c.cells[name].ids) for c in board.columns if name in c.cells} for name in board.benchmarks}
    yield "questions", "; ".join(f"{name} {_range(counts)}" for name, counts in sizes.items())
    yield from (("mind", remark) for remark in remarks(board))
    if board.left_out:
        yield "left out", "; ".join(board.left_out)
    yield "statistics", f"{doubt.resamples} bootstrap resamples, seed {doubt.seed}"


def _run_facts(run: Mapping[str, Any]) -> list[str]:
    """How a run was made, fact by fact."""
    settings, config = run["settings"], run.get("config", {})
    index = config.get("retrieval", {}).get("index") or settings["index"]
    return [
        f"model {settings['backbone']['model']}",
        *_frozen(settings),
        f"index {index}" if index else "no index",
        f"k {settings['retrieval']['k']}",
        f"split {settings['split']}",
        "all questions" if settings["limit"] is None else f"at most {settings['limit']} questions a set",
        f"seed {settings['seed']}",
        f"temperature {settings['sampling']['temperature']}",
        *_prices(settings),
    ]


def _versions(run: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.get("versions", {}).items())


def _frozen(settings: Mapping[str, Any]) -> Iterator[str]:
    """Roles that spoke with a model of their own."""
    models: dict[str, list[str]] = {}
    for code, backbone in settings.get("roles", {}).items():
        models.setdefault(str(backbone["model"]), []).append(code)
    yield from (f"{' '.join(codes)} by {model}" for model, codes in models.items())


def _prices(settings: Mapping[str, Any]) -> list[str]:
    """What the planner was told that turns and searches cost, where it was told."""
    prices = settings.get("prices")
    return [f"prices {prices['alpha']} a turn and {prices['beta']} a search"] if prices else []


def _noun(board: Board) -> str:
    return "arm" if all(column.label == column.arm.name for column in board.columns) else "method"


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
