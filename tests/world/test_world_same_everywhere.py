"""One seed, one world: in every process, whatever the hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from jade.corpus.world import make_world

PINNED = "c4124f153e15268b1407d4a62742e396366d1db55a0d53a6fe787f9d4c37171e"
"""Of the world below. A change of wording or of a draw changes it: then put the new one here, knowingly."""

SCRIPT = """
import hashlib
from jade.corpus.world import make_world
print(hashlib.sha256(repr(make_world(120, 80, 42)).encode()).hexdigest())
"""


def test_the_world_is_the_same_in_processes_with_other_hash_seeds() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1", "77")
    }
    assert digests == {PINNED}


def test_another_seed_is_another_world() -> None:
    digests = {hashlib.sha256(repr(make_world(50, 10, seed)).encode()).hexdigest() for seed in range(5)}
    assert len(digests) == 5
