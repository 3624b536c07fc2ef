"""An index folder is whole or says in one line why it cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from retrieval_builders import TOWNS, build, passages

from jade.config import RetrievalConfig
from jade.errors import IndexUnusable
from jade.retrieval.index import open_index
from jade.retrieval.manifest import MANIFEST, Manifest, _signature, read_manifest
from jade.retrieval.open import open_retriever


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "index")
    return tmp_path / "index"


def complaint(folder: Path, *, verify: bool = False) -> str:
    with pytest.raises(IndexUnusable) as caught:
        open_index(folder, verify=verify)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rewrite(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change the manifest and sign it again, as someone with ill intent would."""
    fields = json.loads((folder / MANIFEST).read_text())
    change(fields)
    unsigned = {name: fields[name] for name in ("data", "settings", "counts", "parts", "files", "format")}
    fields["checksum"] = _signature(Manifest(**unsigned))
    (folder / MANIFEST).write_text(json.dumps(fields))


def test_what_was_written_comes_back(folder: Path) -> None:
    index = open_index(folder, verify=True)
    assert list(index.passages) == list(TOWNS)
    assert index.manifest.counts == {"files": 1, "documents": 4, "passages": 4, "renamed": 0}
    assert [(record.name, record.first, record.num_passages) for record in index.sources()] == [("t", 0, 4)]
    index.close()


def test_a_folder_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    assert "no such folder; make it with `jade index" in complaint(tmp_path / "none")


def test_an_empty_folder_is_no_index(tmp_path: Path) -> None:
    assert "has no manifest.json, so it is no index" in complaint(tmp_path)


def test_a_folder_of_documents_is_not_told_to_become_the_index(tmp_path: Path) -> None:
    papers = tmp_path / "my papers"
    papers.mkdir()
    assert f"`jade index '{papers}' --out index`" in complaint(papers)
    assert f"`jade index PATH --out '{papers / 'none'}'`" in complaint(papers / "none")


def test_a_newer_format_is_named(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps({"format": 99, "what": "ever"}))
    assert "has format 99, this JADE reads up to 1" in complaint(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": "x"}', "\xff", "[" * 99999, "null"])
def test_a_manifest_that_is_none_is_damage(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text, encoding="latin-1")
    assert "is damaged: manifest.json is not what was written" in complaint(folder)


def test_an_edited_manifest_is_damage(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"passages": 4', '"passages": 5'))
    assert "manifest.json is not what was written" in complaint(folder)


def test_every_missing_file_is_named(folder: Path) -> None:
    for name in read_manifest(folder).files:
        path = folder / read_manifest(folder).data / name
        kept = path.read_bytes()
        path.unlink()
        assert f"{name} is missing" in complaint(folder)
        path.write_bytes(kept)
    open_index(folder).close()


def test_every_truncated_or_changed_file_is_named(folder: Path) -> None:
    for name in read_manifest(folder).files:
        path = folder / read_manifest(folder).data / name
        kept = path.read_bytes()
        path.write_bytes(kept[:-1])
        assert f"{name} has {len(kept) - 1:,} bytes instead of {len(kept):,}" in complaint(folder)
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        assert f"{name} is not what was written (its sha256 differs)" in complaint(folder)
        path.write_bytes(kept)


def test_a_changed_byte_in_a_large_file_is_found_when_asked(tmp_path: Path) -> None:
    build(tmp_path / "index", passages(["long text " * 1000] * 120))
    index = open_index(tmp_path / "index", verify=True)
    path = index.data / "passages.jsonl"
    index.close()
    with path.open("r+b") as file:
        file.seek(600_000)
        file.write(b"X")
    open_index(tmp_path / "index").close()
    assert "passages.jsonl is not what was written" in complaint(tmp_path / "index", verify=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(data="../elsewhere"),
        lambda fields: fields.update(data="/etc"),
        lambda fields: fields["files"].update({"../../secret": {"num_bytes": 1, "sha256": ""}}),
        lambda fields: fields["files"].update({"/etc/passwd": {"num_bytes": 1, "sha256": ""}}),
    ],
)
def test_a_manifest_cannot_point_outside_its_folder(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    rewrite(folder, change)
    assert "manifest.json is not what was written" in complaint(folder)


def test_passages_that_do_not_match_the_count_are_damage(folder: Path) -> None:
    rewrite(folder, lambda fields: fields.update(counts={"passages": 3}))
    assert "its passages are not those it counts" in complaint(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("passages.starts.npy", b"xx", "its passages cannot be opened"),
        ("bm25/indptr.csc.index.npy", b"xx", "its bm25 part cannot be opened"),
        ("bm25/vocab.index.json", b"xx", "its bm25 part cannot be opened"),
        ("bm25/vocab.index.json", b"[]", "its bm25 part cannot be opened"),
    ],
)
def test_damage_that_the_size_does_not_show_is_still_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, said: str
) -> None:
    path = folder / read_manifest(folder).data / name
    path.write_bytes(content.ljust(path.stat().st_size))
    monkeypatch.setattr("jade.retrieval.manifest.SMALL_BYTES", 0)  # as if the file were large
    with pytest.raises(IndexUnusable, match=f"is damaged: {said}"):
        open_retriever(RetrievalConfig(index=str(folder)))


def test_words_counted_in_another_way_cannot_be_searched(folder: Path) -> None:
    rewrite(folder, lambda fields: fields.update(parts={"bm25": {"terms": 0}}))
    with pytest.raises(IndexUnusable, match="counts words in another way"):
        open_retriever(RetrievalConfig(index=str(folder)))


def test_a_part_that_is_not_there_is_named_with_the_remedy(folder: Path) -> None:
    with pytest.raises(IndexUnusable, match=r"has no dense part \(it has bm25\); add it with `jade index PATH"):
        open_retriever(RetrievalConfig(index=str(folder), kind="dense"))


def test_an_update_that_finishes_while_the_index_is_opened_is_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = read_manifest(folder)
    build(folder, TOWNS[:2])
    answers = iter([old, read_manifest(folder)])
    monkeypatch.setattr("jade.retrieval.index.read_manifest", lambda folder: next(answers))
    index = open_index(folder)
    assert len(index.passages) == 2
    index.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_manifest_that_may_not_be_read_says_so(folder: Path) -> None:
    (folder / MANIFEST).chmod(0)
    assert "manifest.json cannot be read (Permission denied)" in complaint(folder)


def test_a_manifest_that_is_a_folder_says_so(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()
    assert "manifest.json cannot be read (Is a directory)" in complaint(folder)
