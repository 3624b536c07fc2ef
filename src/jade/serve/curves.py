"""The journal of a training run, from a byte offset on: what a page that looks every few seconds needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jade.errors import TraceUnreadable

MAX_BYTES = 8 << 20
"""Read at most this much at once; the rest comes with the next look."""


def read_curves(path: Path, after: int) -> dict[str, Any]:
    """Rows written since `after`, the offset to ask from next, and whether the journal was cut back since."""
    try:
        size = path.stat().st_size
        cut_back = after > size
        start = 0 if cut_back else after
        with path.open("rb") as file:
            file.seek(start)
            text = file.read(MAX_BYTES)
    except OSError as error:
        raise TraceUnreadable(f"{path}: {error.strerror or error}") from None
    whole = text[: text.rfind(b"\n") + 1]
    rows = [row for line in whole.splitlines() if (row := _row(line)) is not None]
    return {"rows": rows, "next": start + len(whole), "restarted": cut_back, "more": start + len(text) < size}


def _row(line: bytes) -> dict[str, Any] | None:
    """One line of the journal; what is not one is passed over, because a page should show the rest."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("iteration"), int):
        return None
    return row
