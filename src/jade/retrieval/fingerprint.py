"""A short name for an index: enough to see that it no longer holds what it did."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from jade.retrieval.index import SOURCES
from jade.retrieval.manifest import MANIFEST
from jade.retrieval.shards import is_sharded, read_shards


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


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
