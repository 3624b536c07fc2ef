"""What a training run shows while it works: a live table in a terminal, plain lines elsewhere, nothing in tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from jade.learn.guard import Alarm
from jade.received import inert

COLUMNS = ("loss", "reward", "outcome", "rounds", "retrievals", "malformed", "approx_kl", "entropy")
ROWS = 12
NUM_PLANS = 3
PLANS, TOP_PLAN = "plans", "top plan"
TRAINED, READ = "trained tokens/s", "tokens read/s"
# A warm start has little but its loss to show, and joint training has none: it takes no place from the reward.
IMPORTANCE = (
    *("iteration", "loss", "reward", "outcome", "malformed", "left", PLANS, TOP_PLAN, TRAINED, READ),
    *("rounds", "retrievals", "approx kl", "entropy"),
)
"""Columns of the live table, the one that a narrow terminal can least do without first."""


class Spectator(Protocol):
    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None: ...
    def dev(self, number: int, figures: Mapping[str, float]) -> None: ...
    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None: ...
    def remark(self, number: int, text: str) -> None: ...


class Silent:
    """Sees nothing."""

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        return None

    def dev(self, number: int, figures: Mapping[str, float]) -> None:
        return None

    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None:
        return None

    def remark(self, number: int, text: str) -> None:
        return None


class Lines:
    """One line for each thing that happened."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        shown = " ".join(f"{name} {figures[name]:z.3f}" for name in COLUMNS if name in figures)
        counted, speed = speed_of(figures)
        left = time_left(number, total, figures)
        self._say(f"{number}/{total} {shown} {describe_plans(figures)} {speed:,.0f} {counted} {left}")

    def dev(self, number: int, figures: Mapping[str, float]) -> None:
        spoiled = f", {failed:.1%} of the steps failed" if (failed := figures.get("failed_steps", 0.0)) else ""
        self._say(f"{number} dev reward {figures['reward']:.3f} outcome {figures['outcome']:.3f}{spoiled}")

    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None:
        self._say(f"{number} guard: {alarm}; back to {back_to}, step size times {scale:g}")

    def remark(self, number: int, text: str) -> None:
        self._say(f"{number} mind: {text}")

    def _say(self, text: str) -> None:
        self._console.print(escape(inert(text)), soft_wrap=True, highlight=False)  # errors hold what a server said


class LiveTable(Lines):
    """The last iterations as a table that stays in place, with the columns that the terminal has room for; measurements
    and alarms are lines that scroll above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rows: deque[dict[str, str]] = deque(maxlen=ROWS)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._live.stop()

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        row = {"iteration": f"{number}/{total}"}
        row |= {name.replace("_", " "): f"{figures[name]:z.3f}" for name in COLUMNS if name in figures}
        row |= {PLANS: describe_plans(figures), TOP_PLAN: describe_plans(figures, 1)}
        counted, speed = speed_of(figures)
        self._rows.append(row | {counted: f"{speed:,.0f}", "left": time_left(number, total, figures)})
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        columns = choose_columns(self._rows, self._live.console.width)
        table = Table(*columns)
        for row in self._rows:
            table.add_row(*(escape(row.get(name, "")) for name in columns))
        return table


@contextmanager
def watch(console: Console) -> Iterator[Spectator]:
    """The live table in a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    with LiveTable(console) as table:
        yield table


def choose_columns(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """The columns of the last row that can be shown whole in this width, chosen by importance, in the row's order.
    Where the most frequent plans do not fit, the first of them may."""
    room, chosen = width - 1, set[str]()  # the table's right border
    for name in sorted(rows[-1], key=IMPORTANCE.index):
        needed = max(map(cell_len, (name, *(row.get(name, "") for row in rows)))) + 3  # a border, and a blank each side
        if needed <= room and not (name == TOP_PLAN and PLANS in chosen):
            chosen.add(name)
            room -= needed
    return [name for name in rows[-1] if name in chosen]


def describe_plans(figures: Mapping[str, float], num: int = NUM_PLANS) -> str:
    """The most frequent plans with their shares."""
    shares = {name.removeprefix("plan/"): share for name, share in figures.items() if name.startswith("plan/")}
    most = sorted(shares.items(), key=lambda pair: -pair[1])[:num]
    return " ".join(f"{plan} {share:.0%}" for plan, share in most)


def speed_of(figures: Mapping[str, float]) -> tuple[str, float]:
    """What is counted, and how many of it in a second of the whole iteration: tokens that the update learned from, once
    for every pass over them, or all that a warm start read. What was sampled and not learned from is in neither."""
    if "tokens_per_second" in figures:
        return READ, figures["tokens_per_second"]
    trained = sum(count for name, count in figures.items() if name.startswith("tokens/"))
    return TRAINED, trained / figures["seconds"] if figures.get("seconds") else 0.0


def time_left(number: int, total: int, figures: Mapping[str, float]) -> str:
    minutes, seconds = divmod(round((total - number) * figures.get("seconds", 0.0)), 60)
    return f"{minutes}:{seconds:02d} left"
