"""What a server sends, read no further than a bound.

Answers are asked for unpacked, and taken as they came: a small packed piece may hold more than fits into memory before
anything could be counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

UNPACKED = {"Accept-Encoding": "identity"}
"""The header that asks for it."""
MOST_BYTES = 64_000_000
PACKINGS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd"})


class NotTaken(Exception):
    """An answer that is not read to its end, and why."""


async def read_answer(response: httpx.Response, most_bytes: int = MOST_BYTES) -> bytes:
    """The body of a response that is being streamed."""
    packings = response.headers.get("Content-Encoding", "").lower().replace(" ", "").split(",")
    if PACKINGS.intersection(packings):
        raise NotTaken("its answer is packed, which it was asked not to do")
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > most_bytes:
            raise NotTaken(f"its answer is larger than {most_bytes:,} bytes")
    return bytes(data)


def whole(text: str) -> str:
    """JSON can spell half of a character, which nothing after it could write down; a `?` in its place."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
