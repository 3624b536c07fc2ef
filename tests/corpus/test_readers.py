"""Every kind of file: what is read of it, and that nothing in it can stop the reading."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from corpus_builders import docx, jsonl, jsonl_gz, paragraph, pdf, row, word_file, write_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jade.corpus.documents import Document, Limits, Unreadable
from jade.corpus.read import READERS, read_documents, read_passages
from jade.corpus.readers.html import visible_text

SMALL = Limits(file_bytes=2000, row_bytes=500)


def read(path: Path, limits: Limits | None = None) -> list[Document | Unreadable]:
    return list(read_documents(path, limits=limits))


def document(path: Path) -> Document:
    (found,) = read(path)
    assert isinstance(found, Document)
    return found


def reason(path: Path, limits: Limits | None = None) -> str:
    (found,) = read(path, limits)
    assert isinstance(found, Unreadable)
    assert found.path == path.name
    assert "\n" not in found.reason
    return found.reason


def test_a_text_file_is_one_document_named_after_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"annual_report.txt": "We made profit.\n"})
    found = document(tmp_path / "annual_report.txt")
    assert (found.name, found.title, found.text) == ("annual_report.txt", "annual report", "We made profit.\n")


@pytest.mark.parametrize(
    "data",
    [
        "Café — naïve".encode(),
        "Café — naïve".encode("utf-8-sig"),
        "Café — naïve".encode("utf-16"),
        "Café — naïve".encode("cp1252"),
    ],
)
def test_common_encodings_are_understood(tmp_path: Path, data: bytes) -> None:
    write_files(tmp_path, {"a.txt": data})
    assert document(tmp_path / "a.txt").text == "Café — naïve"


@pytest.mark.parametrize(
    "data", [b"\x7fELF\0\0\x01", bytes(range(1, 32)) * 9, b"\x81\x8d\x8f\x90\x9d" * 9, b"\xff\xfeabc"]
)
def test_binary_junk_named_txt_is_not_text(tmp_path: Path, data: bytes) -> None:
    write_files(tmp_path, {"junk.txt": data})
    assert "is not text" in reason(tmp_path / "junk.txt")


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": " \n", "b.md": "# Only a title\n"})
    assert reason(tmp_path / "a.txt") == reason(tmp_path / "b.md") == "holds no text"


def test_a_file_over_the_limit_is_passed_over(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x" * 2001, "b.txt": "x" * 2000})
    assert "larger than the limit of 0.002 MB" in reason(tmp_path / "a.txt", SMALL)
    assert isinstance(read(tmp_path / "b.txt", SMALL)[0], Document)


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ("# The Town\n\nIt is old.\n", "The Town", "\nIt is old.\n"),
        ("#  The Town  ##\nIt is old.", "The Town", "It is old."),
        ("---\ntitle: 'The Town'\ntags: a\n---\nIt is old.", "The Town", "It is old."),
        ("---\ntitle: Front\n---\n# Heading\nIt is old.", "Front", "It is old."),
        ("---\n---\nIt is old.", "page", "It is old."),
        ("It is old.\n# Later\n", "page", "It is old.\n# Later\n"),
        ("## Second level\nIt is old.", "page", "## Second level\nIt is old."),
    ],
)
def test_markdown_takes_its_title_from_front_matter_or_the_first_heading(
    tmp_path: Path, text: str, title: str, body: str
) -> None:
    write_files(tmp_path, {"page.md": text})
    found = document(tmp_path / "page.md")
    assert (found.title, found.text[found.start :]) == (title, body)


PAGE = """<!doctype html><html><head><title>My &amp; page</title><style>p {color: red}</style>
<script>if (a < b) { document.write("<p>evil</p>") }</script></head>
<body><h1>Head</h1><p>First <b>bold</b>
 word.</p><noscript>turn it on</noscript><p>Second<br>line &lt;script&gt;.</p><template><p>hidden</p></template>
<table><tr><td>a</td><td>b</td></tr></table><!-- a comment --></body></html>"""


def test_html_is_the_words_a_reader_sees(tmp_path: Path) -> None:
    write_files(tmp_path, {"page.html": PAGE})
    found = document(tmp_path / "page.html")
    assert found.title == "My & page"
    assert found.text == "Head\n\nFirst bold word.\n\nSecond\nline <script>.\n\na b"


def test_preformatted_lines_stay_lines() -> None:
    page = "<p>Run\nit:<pre>jade index\r\n  <b>jade</b> ask\n</pre><p>and\nwait</p></pre>a\nb"
    assert visible_text(page).text == "Run it:\n\njade index\njade ask\n\nand wait\n\na b"


def test_navigation_is_no_part_of_a_page() -> None:
    links = "<ul><li><a href=/>Home</a><nav>More</nav><li>About</ul>"
    page = f"<header>Ashford</header><NAV class=top>{links}</NAV><p>A town.<nav>{links}</nav><p>It is old."
    assert visible_text(page).text == "Ashford\n\nA town.\n\nIt is old."


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<script>never closed", ""),
        ("</style>seen", "seen"),
        ("<svg><object>x</svg>seen", "seen"),
        ("a<p>b<p>c", "a\n\nb\n\nc"),
        ("plain & simple", "plain & simple"),
        ("in&shy;vis\u00adible", "invisible"),
        ("<script>x</script >after", "after"),
        ("<nav>never <b>closed", "never closed"),
        ("</nav>seen", "seen"),
    ],
)
def test_broken_markup_hides_no_more_than_it_must(markup: str, text: str) -> None:
    assert visible_text(markup).text == text


def test_an_html_page_without_a_title_takes_its_heading_and_its_declared_encoding(tmp_path: Path) -> None:
    page = "<meta charset='iso-8859-2'><h1>Łódź</h1>Miasto.".encode("iso-8859-2")
    write_files(tmp_path, {"a.htm": page, "b.html": "no title"})
    assert document(tmp_path / "a.htm").title == "Łódź"
    assert document(tmp_path / "b.html").title == "b"


@given(st.text(alphabet=st.sampled_from("<>/!-'\"=& abpscriptstyle"), max_size=200))
def test_no_markup_stops_the_reader(markup: str) -> None:
    assert isinstance(visible_text(markup).text, str)


def test_a_pdf_is_one_document_that_knows_its_pages(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.pdf": pdf(["The first page.", "The second page."], title="On pages")})
    found = document(tmp_path / "a.pdf")
    assert (found.title, found.text) == ("On pages", "The first page.\nThe second page.")
    assert found.pages == (0, 16)


@pytest.mark.parametrize("data", [b"%PDF-1.4 and then nothing", b"not a pdf", b"", pdf(["x"])[:200]])
def test_a_broken_pdf_is_listed_with_one_line(tmp_path: Path, data: bytes) -> None:
    write_files(tmp_path, {"a.pdf": data})
    assert "is not a readable PDF" in reason(tmp_path / "a.pdf")


def test_a_pdf_of_pictures_says_that_it_holds_no_text(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.pdf": pdf([""])})
    assert reason(tmp_path / "a.pdf") == "holds no text (scanned pages?)"


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_pdf_with_a_password_says_so_and_one_that_only_forbids_printing_is_read(
    tmp_path: Path, algorithm: str
) -> None:
    from pypdf import PdfReader, PdfWriter

    write_files(tmp_path, {"open.pdf": pdf(["Secret."])})
    for name, password in (("a.pdf", "word"), ("b.pdf", "")):
        writer = PdfWriter(clone_from=PdfReader(tmp_path / "open.pdf"))
        writer.encrypt(password, owner_password="owner", algorithm=algorithm)
        writer.write(tmp_path / name)
    assert reason(tmp_path / "a.pdf") == "is protected by a password"
    assert document(tmp_path / "b.pdf").text == "Secret."


def test_a_word_file_is_its_paragraphs(tmp_path: Path) -> None:
    docx(tmp_path / "a.docx", ["First one.", "", "Second & last."], title="Minutes")
    found = document(tmp_path / "a.docx")
    assert (found.title, found.text) == ("Minutes", "First one.\n\nSecond & last.")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (paragraph("From 1939", "<w:noBreakHyphen/><w:t>45.</w:t>"), "From 1939-45."),
        (row(paragraph("Dam"), paragraph("1931")) + paragraph("After."), "Dam 1931\n\nAfter."),
        (row(paragraph("Dam"), ""), "Dam"),
        (row(paragraph("One.") + paragraph("Two."), paragraph("Three.")), "One.\n\nTwo.\n\nThree."),
        ("<w:moveFrom>" + paragraph("Moved.") + "</w:moveFrom>" + paragraph("Stays."), "Stays."),
    ],
)
def test_a_word_file_reads_as_it_is_shown(tmp_path: Path, body: str, text: str) -> None:
    assert document(word_file(tmp_path / "a.docx", body)).text == text


def test_notes_of_a_word_file_are_read_after_its_body(tmp_path: Path) -> None:
    path = word_file(tmp_path / "a.docx", paragraph("It was dear."), notes=paragraph("It cost 9 million."))
    assert document(path).text == "It was dear.\n\nIt cost 9 million."


@pytest.mark.parametrize(
    "form", [{"member": "document2.xml"}, {"namespace": "http://purl.oclc.org/ooxml/wordprocessingml/main"}]
)
def test_other_programs_forms_of_a_word_file_are_read(tmp_path: Path, form: dict[str, str]) -> None:
    assert document(word_file(tmp_path / "a.docx", paragraph("Seen."), **form)).text == "Seen."


def test_a_word_file_that_expands_beyond_the_limit_is_passed_over(tmp_path: Path) -> None:
    docx(tmp_path / "a.docx", ["boom " * 100_000])
    assert "unpacks to more than the limit" in reason(tmp_path / "a.docx", SMALL)


def test_a_word_file_with_entities_is_not_expanded(tmp_path: Path) -> None:
    docx(tmp_path / "a.docx", ["text"], prologue='<!DOCTYPE x [<!ENTITY a "aaaa">]>')
    assert "declares XML entities" in reason(tmp_path / "a.docx")


def test_a_word_file_that_is_none_is_listed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.docx": b"PK\x03\x04 broken"})
    with zipfile.ZipFile(tmp_path / "b.docx", "w") as archive:
        archive.writestr("other.xml", "<a/>")
    with zipfile.ZipFile(tmp_path / "c.docx", "w") as archive:
        archive.writestr("word/document.xml", "<a><b></a>")
    for name in ("a.docx", "b.docx", "c.docx"):
        assert "is not a readable .docx file" in reason(tmp_path / name)


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_word_file_that_is_damaged_inside_is_listed(tmp_path: Path, packing: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.docx", "w", packing) as archive:
        archive.writestr("word/document.xml", "".join(f"<a{number}/>" for number in range(900)))
    data = (tmp_path / "a.docx").read_bytes()
    write_files(tmp_path, {"a.docx": data[:60] + b"\xff" * 200 + data[260:]})
    assert "is not a readable .docx file" in reason(tmp_path / "a.docx")


def test_a_word_file_cannot_hide_its_entities_in_another_encoding(tmp_path: Path) -> None:
    """A few kilobytes became a text of nine hundred million letters."""
    markup = '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE x [<!ENTITY a "aaaa">]><x><p><t>&a;</t></p></x>'
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as archive:
        archive.writestr("word/document.xml", markup.encode("utf-16"))
    assert reason(tmp_path / "a.docx") == "is not written in UTF-8, as every Word file is"


@pytest.mark.parametrize("charset", ["undefined", "unicode_escape", "raw_unicode_escape"])
def test_a_page_that_declares_an_encoding_of_no_letters_is_read_by_another(tmp_path: Path, charset: str) -> None:
    """What these make of it nothing could write down, and the whole index failed with it."""
    write_files(tmp_path, {"a.html": f'<meta charset="{charset}"><p>Caf'.encode() + b"\xe9 \\ud800"})
    assert document(tmp_path / "a.html").text == "Caf\u00e9 \\ud800"


ROWS = [
    {"id": "1", "contents": '"The Town"\nIt is old.\nIt is small.'},
    {"id": 2, "title": "The River", "text": "It is long."},
    {"id": "3", "contents": "No title here."},
    {"text": "No id.", "title": None},
]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz", "CORPUS.JSONL"])
def test_both_forms_of_rows_are_read(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {name: jsonl_gz(ROWS) if name.endswith("gz") else jsonl(ROWS)})
    rows = [found for found in read(tmp_path / name) if isinstance(found, Document)]
    assert [(row.own_id, row.title, row.text) for row in rows] == [
        ("1", "The Town", "It is old.\nIt is small."),
        ("2", "The River", "It is long."),
        ("3", "", "No title here."),
        ("", "", "No id."),
    ]
    assert [row.place for row in rows] == ["line 1", "line 2", "line 3", "line 4"]


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ("A bird of prey.", "A bird of prey."),
        ("A bird.\nIt hovers.", "A bird.\nIt hovers."),
        ('"Kestrel"\nA bird.', "A bird."),
        ("Kestrel\nA bird.", "A bird."),
    ],
)
def test_a_title_beside_contents_is_kept_and_not_read_twice(tmp_path: Path, contents: str, text: str) -> None:
    write_files(tmp_path, {"a.jsonl": jsonl([{"id": "1", "title": "Kestrel", "contents": contents}])})
    (row,) = (found for found in read(tmp_path / "a.jsonl") if isinstance(found, Document))
    assert (row.title, row.text) == ("Kestrel", text)


def test_broken_lines_are_listed_and_the_others_kept(tmp_path: Path) -> None:
    lines = ["{", "", "[1]", '{"id": 1}', '{"text": " "}', '{"text": 5}', {"text": "Kept."}, "[" * 100_000]
    write_files(tmp_path, {"a.jsonl": jsonl(lines)})
    found = read(tmp_path / "a.jsonl", Limits())
    assert [item.path for item in found if isinstance(item, Unreadable)] == [
        f"a.jsonl:line {number}" for number in (1, 3, 4, 5, 6, 8)
    ]
    assert [item.text for item in found if isinstance(item, Document)] == ["Kept."]


def test_of_very_many_broken_lines_the_rest_is_counted(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": jsonl(["{"] * 50)})
    found = read(tmp_path / "a.jsonl")
    assert len(found) == 21
    assert found[-1] == Unreadable("a.jsonl", "has 30 more lines that cannot be read")


def test_a_line_without_end_stops_at_the_limit(tmp_path: Path) -> None:
    rows = [{"text": "Kept."}, '{"text": "' + "0" * 1_000_000]
    write_files(tmp_path, {"a.jsonl": jsonl(rows), "b.jsonl.gz": jsonl_gz(rows)})
    for name in ("a.jsonl", "b.jsonl.gz"):
        kept, stopped = read(tmp_path / name, SMALL)
        assert isinstance(kept, Document)
        assert isinstance(stopped, Unreadable)
        assert stopped.reason == "has a line larger than the limit of 0.0005 MB; nothing from there on was read"


def test_a_gzip_that_is_cut_off_keeps_what_came_before(tmp_path: Path) -> None:
    data = jsonl_gz([{"text": f"Row {number}. " + "x" * 300} for number in range(2000)])
    write_files(tmp_path, {"a.jsonl.gz": data[: len(data) // 2], "b.jsonl.gz": b"no gzip"})
    found = read(tmp_path / "a.jsonl.gz")
    assert isinstance(found[0], Document)
    assert "damaged gzip" in str(found[-1])
    assert "damaged gzip" in reason(tmp_path / "b.jsonl.gz")


def test_half_a_surrogate_pair_can_be_written_afterwards(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b'{"id": "\\ud800", "title": "\\ud800", "text": "a \\udfff b"}\n'})
    found = document(tmp_path / "a.jsonl")
    assert (found.own_id + found.title + found.text).encode() == b"??a ? b"


def test_a_kind_that_is_not_read_is_named_with_those_that_are(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.xlsx": b"x"})
    assert ".docx" in reason(tmp_path / "a.xlsx")


def test_a_file_that_vanished_is_listed(tmp_path: Path) -> None:
    assert reason(tmp_path / "gone.txt") == "cannot be opened (No such file or directory)"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.binary(max_size=300))
def test_no_bytes_under_any_name_stop_the_reading(tmp_path: Path, ending: str, data: bytes) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(data)
    for found in read_passages(path):
        assert isinstance(found, Unreadable) or all(passage.text for passage in found)
