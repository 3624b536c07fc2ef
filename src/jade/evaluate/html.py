"""A report as one HTML page: nothing is loaded from elsewhere, nothing runs, and all foreign text is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from html import escape
from importlib.resources import files

from jade.evaluate.content import Content
from jade.evaluate.examples import Example, outline
from jade.evaluate.picture import DARK, LIGHT, Picture, Theme
from jade.evaluate.tables import Entry, Table


def to_html(content: Content) -> str:
    style = files("jade.evaluate").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(content.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(_body(content))
        + "\n</main>\n</body>\n</html>\n"
    )


def _body(content: Content) -> Iterator[str]:
    yield f"<h1>{escape(content.title)}</h1>"
    yield "<dl>" + "".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in content.facts) + "</dl>"
    for table in content.verdict:
        yield from _table(table)
    if content.pictures:
        yield '<div class="pictures">'
        yield from (_picture(picture) for picture in content.pictures)
        yield "</div>"
    for table in content.tables:
        yield from _table(table)
    yield f"<section><h2>Examples of {escape(content.focus)}</h2>"
    for title, examples in content.examples:
        yield f"<h3>{escape(title)}</h3>"
        yield from (_example(example) for example in examples)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    first_mean = len(table.header) - table.num_means
    head = "".join(f"<th{_mean(n >= first_mean)} scope=col>{escape(name)}</th>" for n, name in enumerate(table.header))
    rows = "\n".join(_row(row, first_mean) for row in table.rows)
    yield f"<section><h2>{escape(table.title)}</h2>"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
    kind = " class=words" if table.in_words else ""
    yield f"<table{kind}><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"
    yield f"<p>{escape(table.note)}</p></section>"


def _row(row: tuple[Entry, ...], first_mean: int) -> str:
    name, *values = row
    cells = "".join(f"<td{_mean(place >= first_mean)}>{_entry(v)}</td>" for place, v in enumerate(values, start=1))
    return f"<tr><th scope=row>{_entry(name)}</th>{cells}</tr>"


def _mean(sums_up: bool) -> str:
    return " class=mean" if sums_up else ""


def _entry(entry: Entry) -> str:
    text = f"<strong>{escape(entry.text)}</strong>" if entry.best else escape(entry.text)
    return text + "".join(f"<small>{escape(line)}</small>" for line in entry.small)


def _picture(picture: Picture) -> str:
    return (
        f"<figure><h2>{escape(picture.title)}</h2><picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{_data(picture, DARK)}">'
        f'<img src="{_data(picture, LIGHT)}" alt="{escape(f"{picture.title}: {picture.caption}")}"></picture>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _data(picture: Picture, theme: Theme) -> str:
    return "data:image/svg+xml;base64," + b64encode(picture.svg(theme)).decode()


def _example(example: Example) -> str:
    record = example.record
    verdict = f" <em>{escape(record.failure)}</em>" if record.failure else ""
    lines = escape("\n".join(outline(example.trace)))
    return (
        f"<details><summary>{escape(record.question)} <span>{escape(example.benchmark)}</span></summary>"
        f"<p>answer: <b>{escape(record.answer or 'none')}</b>{verdict}<br>"
        f"gold: {escape(' / '.join(record.golds[:4]))}</p><pre>{lines}</pre></details>"
    )
