"""From finished runs to a report: Markdown, one self-contained HTML page, and every picture as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jade.evaluate.arms import Arm
from jade.evaluate.board import read_board
from jade.evaluate.content import compose
from jade.evaluate.effect import Doubt
from jade.evaluate.figures import LIGHT
from jade.evaluate.html import to_html
from jade.evaluate.markdown import to_markdown
from jade.evaluate.statistics import RESAMPLES


def write_report(
    arms: Sequence[Arm],
    out: Path,
    *,
    baseline: str | None = None,
    focus: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Path]:
    """Write the report of some arms into a folder; the files that were written."""
    content = compose(read_board(arms), Doubt(resamples, seed), baseline, focus)
    out.mkdir(parents=True, exist_ok=True)
    written = {"report.md": to_markdown(content).encode(), "report.html": to_html(content).encode()}
    for picture in content.pictures:
        written[f"{picture.name}.png"] = picture.png(LIGHT)
        written[f"{picture.name}.svg"] = picture.svg(LIGHT)
    for name, data in written.items():
        (out / name).write_bytes(data)
    return [out / name for name in written]
