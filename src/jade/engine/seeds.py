"""Seeds that follow from what a draw is for, not from when it is made.

So a question gives the same trace alone, among thousands, and after a resumed run (see `budget` for how parallel
children share what they may spend).
"""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from a base seed and the names of what is drawn."""
    text = "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1
