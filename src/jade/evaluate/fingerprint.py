"""What else results may depend on: prompts, by a short name, and the versions of packages."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("jade-team", "torch", "transformers", "peft", "bm25s", "faiss-cpu", "sentence-transformers", "numpy")


def fingerprint_texts(folder: Path) -> str:
    """A hash of a folder's Markdown files, names included."""
    return _digest(b"\0".join(file.name.encode() + b"\0" + file.read_bytes() for file in sorted(folder.glob("*.md"))))


def installed_versions() -> dict[str, str]:
    """The versions that a result may depend on, without importing any of them."""
    return {"python": platform.python_version()} | {name: found for name in PACKAGES if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
