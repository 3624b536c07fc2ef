"""What a training run shows while it works: a live table in a terminal, plain lines elsewhere, nothing in tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from jade.learn.guard import Alarm

COLUMNS = ("loss", "reward", "outcome", "rounds", "retrievals", "malformed", "approx_kl", "entropy")
ROWS = 12
NUM_PLANS = 3


class Spectator(Protocol):
    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None: ...
    def dev(self, number: int, figures: Mapping[str, float]) -> None: ...
    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None: ...


class Silent:
    """Sees nothing."""

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        return None

    def dev(self, number: int, figures: Mapping[str, float]) -> None:
        return None

    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None:
        return None


class Lines:
    """One line for each thing that happened."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        shown = " ".join(f"{name} {figures[name]:.3f}" for name in COLUMNS if name in figures)
        speed = f"{tokens_per_second(figures):,.0f} tokens/s"
        self._say(f"{number}/{total} {shown} {describe_plans(figures)} {speed} {time_left(number, total, figures)}")

    def dev(self, number: int, figures: Mapping[str, float]) -> None:
        spoiled = f", {failed:.1%} of the steps failed" if (failed := figures.get("failed_steps", 0.0)) else ""
        self._say(f"{number} dev reward {figures['reward']:.3f} outcome {figures['outcome']:.3f}{spoiled}")

    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None:
        self._say(f"{number} guard: {alarm}; back to {back_to}, step size times {scale:g}")

    def _say(self, text: str) -> None:
        self._console.print(escape(text), soft_wrap=True, highlight=False)


class LiveTable:
    """The last iterations as a table that stays in place; measurements and alarms scroll above it."""

    def __init__(self, console: Console) -> None:
        self._rows: deque[tuple[str, ...]] = deque(maxlen=ROWS)
        self._columns: list[str] = []
        self._lines = Lines(console)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._live.stop()

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        self._columns = [name for name in COLUMNS if name in figures]
        shown = [f"{figures[name]:.3f}" for name in self._columns]
        speed = f"{tokens_per_second(figures):,.0f}"
        left = time_left(number, total, figures)
        self._rows.append((f"{number}/{total}", *shown, describe_plans(figures), speed, left))
        self._live.update(self._table(), refresh=True)

    def dev(self, number: int, figures: Mapping[str, float]) -> None:
        self._lines.dev(number, figures)

    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None:
        self._lines.alarm(number, alarm, back_to, scale)

    def _table(self) -> Table:
        table = Table("iteration", *(name.replace("_", " ") for name in self._columns), "plans", "tokens/s", "left")
        for row in self._rows:
            table.add_row(*map(escape, row))
        return table


@contextmanager
def watch(console: Console) -> Iterator[Spectator]:
    """The live table in a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    with LiveTable(console) as table:
        yield table


def describe_plans(figures: Mapping[str, float]) -> str:
    """The most frequent plans with their shares."""
    shares = {name.removeprefix("plan/"): share for name, share in figures.items() if name.startswith("plan/")}
    most = sorted(shares.items(), key=lambda pair: -pair[1])[:NUM_PLANS]
    return " ".join(f"{plan} {share:.0%}" for plan, share in most)


def tokens_per_second(figures: Mapping[str, float]) -> float:
    """Tokens written and learned from, a second of the whole iteration; a warm start knows its own."""
    if "tokens_per_second" in figures:
        return figures["tokens_per_second"]
    trained = sum(count for name, count in figures.items() if name.startswith("tokens/"))
    return trained / figures["seconds"] if figures.get("seconds") else 0.0


def time_left(number: int, total: int, figures: Mapping[str, float]) -> str:
    minutes, seconds = divmod(round((total - number) * figures.get("seconds", 0.0)), 60)
    return f"{minutes}:{seconds:02d} left"
