"""What a picture of a report is: drawn by matplotlib without a display, in a light and a dark theme.

Colours tell apart for colour-blind readers too (Okabe and Ito); the same input gives the same file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Theme:
    ink: str
    muted: str
    grid: str
    paper: str


LIGHT = Theme(ink="#1d2430", muted="#6b7482", grid="#e3e6eb", paper="#ffffff")
DARK = Theme(ink="#e6e9ee", muted="#9aa4b2", grid="#353c47", paper="#171b21")
SERIES = ("#7F7F7F", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#A6761D", "#66A61E", "#0072B2")


@dataclass(frozen=True)
class Picture:
    """A figure by name, with what it shows in words."""

    name: str
    title: str
    caption: str
    draw: Callable[[Theme], Figure]

    _svgs: dict[Theme, bytes] = field(default_factory=dict, repr=False, compare=False)

    def svg(self, theme: Theme) -> bytes:
        """Drawn once: the page and the file beside it show the same."""
        if theme not in self._svgs:
            self._svgs[theme] = _rendered(self.draw, theme, "svg")
        return self._svgs[theme]

    def png(self, theme: Theme) -> bytes:
        return _rendered(self.draw, theme, "png")


def _rendered(draw: Callable[[Theme], Figure], theme: Theme, kind: str) -> bytes:
    settings: dict[Any, Any] = {
        "font.size": 10,
        "font.family": "sans-serif",
        "svg.fonttype": "path",
        "svg.hashsalt": "jade",
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.muted,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "grid.color": theme.grid,
        "figure.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
    }
    written = BytesIO()
    with mpl.rc_context(settings):
        # Without what differs from one drawing to the next: the same input gives the same file.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        draw(theme).savefig(written, format=kind, dpi=160, metadata=metadata)
    return written.getvalue()
