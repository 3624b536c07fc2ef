"""What others send: read no further than a bound, and fit to be written down and shown.

Answers are asked for unpacked, and taken as they came: a small packed piece may hold more than fits into memory before
anything could be counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

UNPACKED = {"Accept-Encoding": "identity"}
"""The header that asks for it."""
MOST_BYTES = 64_000_000
_ORDERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and those that turn the direction of writing."""
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")
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


def inert(text: str) -> str:
    """The text without anything that a terminal would act on."""
    return _ORDERS.sub("\N{REPLACEMENT CHARACTER}", text)


def without_password(text: str) -> str:
    """The text with every address in it as others may see it: without name and password."""
    return _CREDENTIALS.sub("", text)
