"""HTML into tags and texts, in time that grows with its length, whatever is in it.

Comments, declarations and instructions are left out. What is opened and never closed is text; only a script or a style
goes on to the page's end, as in a browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NAME = re.compile(r"<(/?)([A-Za-z][^\s/<>]{0,60})")
QUOTED = re.compile(r"=\s*+[\"']")
"""Where the value of an attribute begins that may hold a `>`."""
RAW = frozenset({"script", "style"})
"""Elements whose content is no markup: it ends only at their own end tag."""
SKIPPED = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"), ("</", ">"))
"""How what is neither tag nor text begins and ends; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    closes: bool = False


def pieces_of(markup: str) -> Iterator[Tag | str]:
    """Tags, in lower case and without attributes, and the texts between them, entities and all."""
    finder = Finder(markup)
    text_from = place = 0
    while (place := markup.find("<", place)) >= 0:
        name = NAME.match(markup, place)
        end = _tag_end(markup, name.end(), finder) if name else _skipped_end(markup, place, finder)
        if end is None:  # a `<` that opens nothing is text
            place += 1
            continue
        yield markup[text_from:place]
        text_from = place = end
        if name:
            tags = _tags(name, is_empty=markup[end - 2] == "/")
            yield from tags
            if not tags[-1].closes and tags[-1].name in RAW:
                text_from = place = _raw_end(markup, place, tags[-1].name)
    yield markup[text_from:]


class Finder:
    """Finds what ends something, and remembers from where on it will not be found any more."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._in_vain: dict[str, int] = {}

    def after(self, wanted: str, start: int) -> int | None:
        """The place behind the next occurrence."""
        if start >= self._in_vain.get(wanted, len(self._text) + 1):
            return None
        found = self._text.find(wanted, start)
        if found < 0:
            self._in_vain[wanted] = start
            return None
        return found + len(wanted)


def _tags(name: re.Match[str], *, is_empty: bool) -> tuple[Tag, ...]:
    tag = Tag(name[2].lower(), closes=bool(name[1]))
    return (tag, Tag(tag.name, closes=True)) if is_empty else (tag,)


def _tag_end(markup: str, place: int, finder: Finder) -> int | None:
    """Behind the tag's `>`. One inside quotes is none, if the quotes are closed and a `>` follows."""
    nearest = end = finder.after(">", place)
    while end is not None and (found := QUOTED.search(markup, place, end)):
        place = finder.after(found[0][-1], found.end()) or found.end()
        end = finder.after(">", place) if place >= end else end
    return end or nearest


def _skipped_end(markup: str, place: int, finder: Finder) -> int | None:
    for opening, closing in SKIPPED:
        if markup.startswith(opening, place):
            return finder.after(closing, place + len(opening))
    return None


def _raw_end(markup: str, place: int, name: str) -> int:
    """Where the end tag of a script or a style stands, which is left to be read as a tag."""
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(markup, place)
    return found.start() if found else len(markup)
