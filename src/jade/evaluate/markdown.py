"""A report as Markdown. Whatever models or documents said is escaped, so that it stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jade.evaluate.content import Content
from jade.evaluate.examples import Example, outline
from jade.evaluate.tables import Entry, Table

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def to_markdown(content: Content) -> str:
    return "\n".join(_lines(content)).rstrip() + "\n"


def escape(text: str) -> str:
    """Text as Markdown prints it back, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _lines(content: Content) -> Iterator[str]:
    yield f"# {escape(content.title)}\n"
    for name, value in content.facts:
        yield f"- {escape(name)}: {escape(value)}"
    yield ""
    for table in (*content.verdict, *content.tables):
        yield from _table(table)
    for picture in content.pictures:
        yield f"## {escape(picture.title)}\n"
        yield f"![{escape(picture.title)}]({picture.name}.png)\n"
        yield f"{escape(picture.caption)}\n"
    yield f"## Examples of {escape(content.focus)}\n"
    for title, examples in content.examples:
        yield f"### {escape(title)}\n"
        for example in examples:
            yield from _example(example)


def _table(table: Table) -> Iterator[str]:
    yield f"## {escape(table.title)}\n"
    yield f"| {' | '.join(map(escape, table.header))} |"
    yield f"|{'---|' + ('---|' if table.in_words else '---:|') * (len(table.header) - 1)}"
    yield from (f"| {' | '.join(map(_entry, row))} |" for row in table.rows)
    yield f"\n{escape(table.note)}\n"


def _entry(entry: Entry) -> str:
    text = f"**{escape(entry.text)}**" if entry.best else escape(entry.text)
    return text + "".join(f"<br><sub>{escape(line)}</sub>" for line in entry.small)


def _example(example: Example) -> Iterator[str]:
    record = example.record
    yield f"**{escape(record.question)}** ({escape(example.benchmark)} {escape(record.id)})\n"
    verdict = f" ({escape(record.failure)})" if record.failure else ""
    yield f"answer: {escape(record.answer) or 'none'}{verdict}; gold: {escape(' / '.join(record.golds[:4]))}\n"
    # An indented block is code whatever stands in it.
    yield from (f"    {line}" for line in outline(example.trace))
    yield ""
