"""Names for weights by what they hold: a file's checksum, and a short one that shows whether a folder is the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

TAIL_BYTES = 1 << 20
"""Of a weights file only the end is read: whatever trains weights changes all of them."""


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint_weights(model: str) -> str:
    """A hash of a folder's weights; a name or URL stands for itself."""
    files = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    if not files:
        return model
    return hashlib.sha256(b"".join(map(_size_and_tail, files))).hexdigest()[:16]


def _size_and_tail(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL_BYTES))
        return size.to_bytes(8) + hashlib.sha256(file.read()).digest()
