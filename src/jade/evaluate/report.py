"""From finished runs to a report: Markdown, one self-contained HTML page, and every picture as PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jade.errors import ConfigError
from jade.evaluate.arms import Arm
from jade.evaluate.board import read_board
from jade.evaluate.content import compose
from jade.evaluate.effect import Doubt
from jade.evaluate.html import to_html
from jade.evaluate.markdown import to_markdown
from jade.evaluate.picture import LIGHT
from jade.evaluate.statistics import RESAMPLES

PAGES = ("report.md", "report.html")
TITLE = re.compile(rb"(?:^# |<title>)\d+ (?:arm|method)s? on \d+ benchmarks?(?:\n|</title>)")
"""How a report begins, and what is somebody's own does not."""
TITLE_WITHIN_BYTES = 1000


def write_report(
    arms: Sequence[Arm],
    out: Path,
    *,
    baseline: str | None = None,
    focus: str | None = None,
    changes: Sequence[str] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Path]:
    """Write the report of some arms into a folder; the files that were written. An older report is replaced."""
    for name in PAGES:
        _check_is_ours(out / name)
    content = compose(read_board(arms), Doubt(resamples, seed), baseline, focus, changes)
    out.mkdir(parents=True, exist_ok=True)
    pages = (to_markdown(content), to_html(content))
    # Half a character, as a model may write one, has no bytes of its own; nor has a folder's name that is no text.
    written = dict(zip(PAGES, (page.encode(errors="backslashreplace") for page in pages), strict=True))
    for picture in content.pictures:
        written[f"{picture.name}.png"] = picture.png(LIGHT)
        written[f"{picture.name}.svg"] = picture.svg(LIGHT)
    for name, data in written.items():
        _write_whole(out / name, data)
    return [out / name for name in written]


def _write_whole(path: Path, data: bytes) -> None:
    """Or not at all: half a page would be taken for somebody's own by the next report, and be left alone."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


def _check_is_ours(page: Path) -> None:
    """Refuse to write over a page that is no report of ours."""
    if not page.is_file():
        return
    with page.open("rb") as file:
        if not TITLE.search(file.read(TITLE_WITHIN_BYTES)):
            raise ConfigError(f"--out: {page} is no report of jade's and would be lost; give another folder or move it")
