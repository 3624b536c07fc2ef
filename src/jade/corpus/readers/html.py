"""Web pages: the words a reader would see, without scripts, styles and markup, and without navigation.

Pages come from strangers, so the time to read one grows with its size and with nothing else: what is opened and never
closed is looked for once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from jade.corpus.documents import Document, Limits
from jade.corpus.readers.markup import Tag, pieces_of
from jade.corpus.readers.plain import SOFT_HYPHEN, decode, read_bytes, title_from

HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object", "select"})
BLOCK_TAGS = (
    "address article aside blockquote body caption dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table tr ul"
)
SPACE = {**dict.fromkeys(BLOCK_TAGS.split(), "\n\n"), "td": " ", "th": " ", "br": "\n"}
"""What stands for a tag in the text. A block's end is a blank line, so that it also ends a sentence."""
CHARSET = re.compile(rb"<meta[^>]{0,200}?charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
SNIFFED_BYTES = 4096


def read_html(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """An .html file is one document; its title is <title>, else the first <h1>, else the file's name."""
    data = read_bytes(path, limits)
    charset = CHARSET.search(data, 0, SNIFFED_BYTES)
    page = visible_text(decode(data, charset[1].decode("ascii", "replace") if charset else ""))
    yield Document(name, page.title or page.first_heading or title_from(path), page.text)


class Page:
    """Collects text, tag by tag."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._hidden_in, self._hidden_depth = "", 0
        self._preformatted = 0
        self._within: dict[str, list[str]] = {}
        self._heard: dict[str, str] = {}
        self._navigation_from: list[int] = []
        """Where the links to other pages begin that are not closed yet."""

    def add(self, piece: Tag | str) -> None:
        if isinstance(piece, str):
            self._add_text(unescape(piece).replace(SOFT_HYPHEN, ""))
        elif self._hidden_depth:
            # Only tags of the hidden element's own kind are counted: others inside it may never be closed.
            self._hidden_depth += (-1 if piece.closes else 1) * (piece.name == self._hidden_in)
        elif piece.name in HIDDEN:
            self._hidden_in, self._hidden_depth = piece.name, 0 if piece.closes else 1
        else:
            self._add_tag(piece)

    def _add_tag(self, tag: Tag) -> None:
        if tag.closes and tag.name in self._within:
            self._heard.setdefault(tag.name, " ".join("".join(self._within.pop(tag.name)).split()))
        elif not tag.closes and tag.name in ("title", "h1"):
            self._within[tag.name] = []
        if tag.name == "pre":
            self._preformatted = max(0, self._preformatted + (-1 if tag.closes else 1))
        if tag.name == "nav" and not tag.closes:
            self._navigation_from.append(len(self._pieces))
        elif tag.name == "nav" and self._navigation_from:  # only what is closed is dropped: else the page would be lost
            del self._pieces[self._navigation_from.pop() :]
        self._pieces.append(SPACE.get(tag.name, ""))

    def _add_text(self, text: str) -> None:
        if self._hidden_depth:
            return
        for heard in self._within.values():
            heard.append(text)
        if "title" not in self._within:
            self._pieces.append(text if self._preformatted else re.sub(r"\s+", " ", text))

    @property
    def title(self) -> str:
        return self._heard.get("title", "")

    @property
    def first_heading(self) -> str:
        return self._heard.get("h1", "")

    @property
    def text(self) -> str:
        lines = (re.sub(r"[ \t]{2,}", " ", line).strip(" \t\r") for line in "".join(self._pieces).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def visible_text(markup: str) -> Page:
    page = Page()
    for piece in pieces_of(markup):
        page.add(piece)
    return page
