"""Short names for large things: enough to see that an index, weights or prompts are no longer the same."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jade.retrieval.index import SOURCES
from jade.retrieval.manifest import MANIFEST
from jade.retrieval.shards import is_sharded, read_shards

PACKAGES = ("jade-team", "torch", "transformers", "peft", "bm25s", "faiss-cpu", "sentence-transformers", "numpy")
TAIL_BYTES = 1 << 20
"""Of a weights file only the end is read: whatever trains weights changes all of them."""


def fingerprint_index(index: str) -> str:
    """A server's URL, or a hash of what the index says it holds and how that is searched; of none, nothing.

    Where and when its documents lay is left out: the same documents, indexed on another machine, are the same index.
    """
    manifest = Path(index) / MANIFEST
    if index and is_sharded(Path(index)):
        names = read_shards(Path(index)).names()
        return _digest("".join(fingerprint_index(str(Path(index) / name)) for name in names).encode())
    if not index or not manifest.is_file():
        return index
    try:
        said = json.loads(manifest.read_bytes())
        files = {name: record for name, record in said["files"].items() if Path(name).name != SOURCES}
        held = json.dumps([said["settings"], said["parts"], files], sort_keys=True).encode()
    except (ValueError, KeyError, TypeError, AttributeError):  # whoever opens it says what is wrong with it
        held = manifest.read_bytes()
    return _digest(held)


def fingerprint_weights(model: str) -> str:
    """A hash of a folder's weights; a name or URL stands for itself."""
    files = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    return _digest(b"".join(map(_size_and_tail, files))) if files else model


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


def _size_and_tail(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL_BYTES))
        return size.to_bytes(8) + hashlib.sha256(file.read()).digest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
