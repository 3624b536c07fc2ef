#!/usr/bin/env python3
"""An adapter over a shipped model, as a whole model, which answers faster: runs/merge.py ADAPTER OUT [BASE]."""

from __future__ import annotations

import sys
from pathlib import Path

from jade.backbone.local.merge import merge_adapter
from jade.backbone.weights import resolve_weights


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    adapter, out = map(Path, sys.argv[1:3])
    base = sys.argv[3] if len(sys.argv) == 4 else "smollm2-135m"
    if out.is_dir():
        return
    partial = out.with_name(f".{out.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    merge_adapter(resolve_weights(base), adapter, partial)
    partial.rename(out)


if __name__ == "__main__":
    main()
