"""Files from strangers: whatever is in them, reading takes time and memory by their size, and harms nothing."""

from __future__ import annotations

import os
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest
from corpus_builders import WORD_NAMESPACE, docx, jsonl, paragraph, pdf, word_file, write_files
from hypothesis import given
from hypothesis import strategies as st

from jade.corpus.documents import Document, Limits, Unreadable
from jade.corpus.files import find_files
from jade.corpus.read import read_documents, read_passages
from jade.corpus.readers.html import visible_text
from jade.corpus.readers.pdf import unwrap

MANY = 60_000
FUSE_CPU_SECONDS = 20.0
"""Eight times what the slowest takes under coverage; what looks at everything again and again takes minutes."""


class TookTooLong(BaseException):
    """No error of reading, so that no reader takes it for one."""


@contextmanager
def fuse(seconds: float = FUSE_CPU_SECONDS) -> Iterator[None]:
    """Ends what uses more of the processor; a busy machine makes no difference."""

    def burn(number: int, frame: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGVTALRM, burn)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stops.txt", "." * MANY),
        ("quoted.txt", '."' * MANY),
        ("blank.txt", "a" + "\n " * MANY + "b"),
        ("spaces.md", "# a" + " " * MANY + "b"),
        ("hashes.md", "# " + "#" * MANY + "x"),
        ("front.md", "---\ntitle: a" + " " * MANY + "b\n---\nx"),
        ("fences.md", "---\n" + "---x\n" * MANY),
        ("comments.html", "<!--" * MANY),
        ("tags.html", "<a " * MANY),
        ("values.html", "<a b='" + '<c d="' * MANY + ">"),
        ("ends.html", "</" * MANY),
        ("data.html", "<![CDATA[" * MANY),
        ("hidden.html", "<svg><object>" * MANY + "</b>" * MANY),
        ("script.html", "<script>" + "</" * MANY),
        ("blanks.html", "<b> </b>" * MANY + "x"),
        ("deep.html", "<div>" * MANY + "x"),
        ("row.jsonl", '{"text":"' + "." * MANY + '"}'),
        ("accents.txt", "a" + "\u0301" * MANY),
    ],
)
def test_a_strange_file_takes_no_longer_than_its_size(tmp_path: Path, name: str, text: str) -> None:
    write_files(tmp_path, {name: text})
    with fuse():
        assert list(read_passages(tmp_path / name)) != []


def test_a_page_of_a_pdf_that_is_all_blanks_takes_no_longer_than_its_size() -> None:
    with fuse():
        assert unwrap("a" + " " * MANY + "\n" * MANY + "b").split() == ["a", "b"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("one line\nanother", "one line another"),
        ("a hyphen-\nated word", "a hyphenated word"),
        ("a soft hyphen\u00ad\nated and a set hyphen\u2010\nated word", "a soft hyphenated and a set hyphenated word"),
        ("the e\u00adf\u00adfort of o\ufb03ce \ufb01nance", "the effort of office finance"),
        ("one  \n  \n two", "one\n\ntwo"),
        ("one\n\n\ntwo\nthree", "one\n\n\ntwo three"),
        ("", ""),
    ],
)
def test_lines_of_a_pdf_are_joined_and_blank_ones_kept(page: str, text: str) -> None:
    assert unwrap(page) == text


class Reference(HTMLParser):
    """The standard library's reading of well-formed markup."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "svg")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "svg")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words += data.split()


WORDS = st.sampled_from([" word ", " &amp; ", " &lt;p&gt; ", " 1 < 2 ", " é ", " a &#233; "])
MARKUP = st.recursive(
    WORDS
    | st.sampled_from(["<!-- <p>no</p> -->", "<script>if (a < b) '</p>'</script>", "<br/>", "<!doctype x>", "<?x?>"]),
    lambda inner: st.builds(
        "<{0} {1}>{2}</{0}>".format,
        st.sampled_from(["p", "div", "B", "svg", "td"]),
        st.sampled_from(["", "a=1", 'title="x > y"', "id='\"'", 'hidden a = "\'"']),
        st.lists(inner, max_size=4).map("".join),
    ),
    max_leaves=12,
)


@given(MARKUP)
def test_well_formed_markup_reads_as_the_standard_library_reads_it(markup: str) -> None:
    reference = Reference()
    reference.feed(markup)
    reference.close()
    assert visible_text(markup).text.split() == reference.words


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<svg/>seen", "seen"),
        ("<script src='x'/>seen", "seen"),
        ("<SCRIPT>no</Script >seen", "seen"),
        ("<!-- never closed <b>bold</b>", "<!-- never closed bold"),
        ("if a < b and b > c", "if a < b and b > c"),
        ('<a title="never closed>seen', "seen"),
        ('<a title="closed later>seen</a> "quoted"', 'seen "quoted"'),
        ("<style>p > b</style", ""),
        ("<noscript><p>no</noscript>seen", "seen"),
    ],
)
def test_markup_that_is_not_well_formed_hides_no_more_than_it_must(markup: str, text: str) -> None:
    assert visible_text(markup).text == text


def test_links_in_a_circle_are_listed_and_the_rest_is_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x", "sub/b.txt": "x"})
    (tmp_path / "self.txt").symlink_to("self.txt")
    (tmp_path / "one.md").symlink_to("two.md")
    (tmp_path / "two.md").symlink_to("one.md")
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "sub" / "loop").symlink_to("loop")
    found = find_files([tmp_path], exclude=tmp_path / "index")
    assert [file.name for file in found.files] == ["a.txt", "sub/b.txt"]
    assert {item.path for item in found.unreadable} == {"one.md", "self.txt", "two.md"}
    assert {item.reason for item in found.unreadable} == {"cannot be opened (Too many levels of symbolic links)"}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_is_closed_is_listed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x", "closed/b.txt": "x"})
    (tmp_path / "closed").chmod(0)
    try:
        found = find_files([tmp_path])
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert [file.name for file in found.files] == ["a.txt"]
    assert found.unreadable == (Unreadable("closed/", "cannot be opened (Permission denied)"),)


def test_a_folder_deeper_than_a_path_can_say_is_listed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x"})
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    found = find_files([tmp_path], exclude=tmp_path / "index")
    assert [file.name for file in found.files] == ["a.txt"]
    (listed,) = found.unreadable
    assert listed.path.endswith("d/")
    assert listed.reason == "cannot be opened (File name too long)"


@pytest.mark.parametrize("ending", ["txt", "md", "html", "pdf", "docx", "jsonl"])
def test_of_a_huge_file_no_more_is_read_than_the_limit(tmp_path: Path, ending: str) -> None:
    """A terabyte, on disk nothing but a number: reading it whole would need a terabyte of memory."""
    path = tmp_path / f"huge.{ending}"
    path.touch()
    os.truncate(path, 10**12)
    (found,) = read_documents(path, limits=Limits(file_bytes=100_000, row_bytes=100_000))
    assert isinstance(found, Unreadable)
    assert "larger than the limit of 0.1 MB" in found.reason


def test_a_broken_line_in_the_middle_costs_that_line_only(tmp_path: Path) -> None:
    rows = [{"id": n, "text": f"Row {n}."} for n in range(5)]
    write_files(tmp_path, {"a.jsonl": jsonl([*rows[:2], '{"id": 9, "text": "cut o', *rows[2:]])})
    found = list(read_documents(tmp_path / "a.jsonl"))
    assert [item.own_id if isinstance(item, Document) else item.path for item in found] == [
        "0", "1", "a.jsonl:line 3", "2", "3", "4",
    ]  # fmt: skip


def test_a_text_box_inside_a_paragraph_is_read_once(tmp_path: Path) -> None:
    """Word writes it twice, the second time for programs from before there were such boxes."""
    inner = paragraph("Inside.")
    box = f"<w:Choice>{inner}</w:Choice><w:Fallback>{inner}</w:Fallback><w:t>After.</w:t>"
    (found,) = read_documents(word_file(tmp_path / "a.docx", paragraph("Before.", box)))
    assert isinstance(found, Document)
    assert found.text == "Before.\n\nInside.\n\nAfter."


def test_a_word_file_of_paragraphs_in_paragraphs_takes_no_longer_than_its_size(tmp_path: Path) -> None:
    deep = f'<w:document xmlns:w="{WORD_NAMESPACE}">' + "<w:p>" * MANY + "<w:t>x</w:t>" + "</w:p>" * MANY
    with zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", deep + "</w:document>")
    with fuse():
        (found,) = read_documents(tmp_path / "a.docx")
    assert isinstance(found, Document)
    assert found.text == "x"


def test_a_zip_inside_a_word_file_stays_packed_and_nothing_is_written(tmp_path: Path) -> None:
    docx(tmp_path / "a.docx", ["Seen."])
    with zipfile.ZipFile(tmp_path / "a.docx", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../escape.txt", "no")
        archive.writestr("/tmp/escape.txt", "no")
        archive.writestr("word/embeddings/bomb.zip", b"\0" * 20_000_000)
    before = sorted(tmp_path.rglob("*"))
    (found,) = read_documents(tmp_path / "a.docx", limits=Limits(file_bytes=100_000))
    assert isinstance(found, Document)
    assert found.text == "Seen."
    assert sorted(tmp_path.rglob("*")) == before


@given(st.binary(max_size=400), st.integers(0, 900))
def test_a_pdf_with_garbage_anywhere_is_read_or_listed(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, place: int
) -> None:
    data = pdf(["The first page.", "The second page."])
    path = tmp_path_factory.mktemp("pdf") / "a.pdf"
    path.write_bytes(data[:place] + garbage + data[place + len(garbage) :])
    with fuse(20.0):
        for found in read_documents(path):
            assert isinstance(found, (Document, Unreadable))


@pytest.mark.parametrize(
    "text", ["\u202e\u2066evil\u2069.", "\ufeff\u200b\u200d word.", "\U0010ffff\ue000 x.", "e\u0301\u0323."]
)
def test_odd_characters_are_kept_as_they_are(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"a.txt": "x " + text})
    (passages,) = read_passages(tmp_path / "a.txt")
    assert not isinstance(passages, Unreadable)
    assert passages[0].text == "x " + text
