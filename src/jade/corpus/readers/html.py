"""Web pages: the words a reader would see, without scripts, styles and markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from jade.corpus.documents import Document, Limits
from jade.corpus.readers.plain import decode, read_bytes, title_from

HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object", "select"})
BLOCK_TAGS = (
    "address article aside blockquote body caption dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table tr ul"
)
BLOCKS = frozenset(BLOCK_TAGS.split())
CELLS = frozenset({"td", "th"})
CHARSET = re.compile(rb"<meta[^>]{0,200}?charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
SNIFFED_BYTES = 4096


def read_html(path: Path, name: str, limits: Limits) -> Iterator[Document]:
    """An .html file is one document; its title is <title>, else the first <h1>, else the file's name."""
    data = read_bytes(path, limits)
    charset = CHARSET.search(data, 0, SNIFFED_BYTES)
    page = visible_text(decode(data, charset[1].decode("ascii", "replace") if charset else ""))
    yield Document(name, page.title or page.first_heading or title_from(path), page.text)


class Page(HTMLParser):
    """Collects text. A block's end is a blank line, so that it also ends a sentence."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._hidden: list[str] = []
        self._within: dict[str, list[str]] = {}
        self._heard: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in HIDDEN:
            self._hidden.append(tag)
        elif tag in ("title", "h1"):
            self._within[tag] = []
        self._space(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        if tag in self._within:
            self._heard.setdefault(tag, " ".join("".join(self._within.pop(tag)).split()))
        self._space(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        for heard in self._within.values():
            heard.append(data)
        if "title" not in self._within:
            self._pieces.append(re.sub(r"\s+", " ", data))

    def _space(self, tag: str) -> None:
        if tag in BLOCKS:
            self._pieces.append("\n\n")
        elif tag in CELLS:
            self._pieces.append(" ")
        elif tag == "br":
            self._pieces.append("\n")

    @property
    def title(self) -> str:
        return self._heard.get("title", "")

    @property
    def first_heading(self) -> str:
        return self._heard.get("h1", "")

    @property
    def text(self) -> str:
        lines = re.sub(r"[ \t]*\n[ \t]*", "\n", "".join(self._pieces))
        return re.sub(r"[ \t]{2,}", " ", re.sub(r"\n{3,}", "\n\n", lines)).strip()


def visible_text(markup: str) -> Page:
    page = Page()
    page.feed(markup)
    page.close()
    return page
