"""Which files are read when someone points at a folder: all inside it, none outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from corpus_builders import write_files

from jade.corpus.documents import Unreadable
from jade.corpus.files import Found, find_files
from jade.errors import DocumentError


def names(found: Found) -> list[str]:
    return [file.name for file in found.files]


def test_a_folder_gives_its_documents_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_files(tmp_path, {"b.md": "x", "a/c.txt": "x", "a.html": "x", "picture.png": b"x", "z/y/x.jsonl": "x"})
    found = find_files([tmp_path])
    assert names(found) == ["a.html", "a/c.txt", "b.md", "z/y/x.jsonl"]
    assert found.num_other == 1
    assert found.unreadable == ()


def test_a_single_file_goes_by_its_own_name(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/c.txt": "x"})
    assert names(find_files([tmp_path / "a" / "c.txt"])) == ["c.txt"]


def test_several_folders_keep_their_names_apart(tmp_path: Path) -> None:
    write_files(tmp_path, {"one/a.md": "x", "two/a.md": "x", "three/two/a.md": "x"})
    found = find_files([tmp_path / "one", tmp_path / "two", tmp_path / "three" / "two"])
    assert names(found) == ["one/a.md", "two/a.md", "two/a.md~2"]


def test_hidden_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    write_files(tmp_path, {".git/config.txt": "x", ".secret.txt": "x", "a.txt": "x"})
    assert names(find_files([tmp_path])) == ["a.txt"]


def test_links_that_leave_the_folder_are_listed_and_not_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"outside/secret.txt": "x", "docs/a.txt": "x"})
    docs = tmp_path / "docs"
    (docs / "leak.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (docs / "dots.txt").symlink_to("../outside/secret.txt")
    (docs / "folder").symlink_to(tmp_path / "outside")
    (docs / "inside.txt").symlink_to("note")
    (docs / "note").write_text("x")
    (docs / "nowhere.txt").symlink_to("missing.txt")
    found = find_files([docs])
    assert names(found) == ["a.txt", "inside.txt"]
    assert {item.path: item.reason for item in found.unreadable} == {
        "dots.txt": "is a link that leaves the folder",
        "leak.txt": "is a link that leaves the folder",
        "nowhere.txt": "cannot be opened (No such file or directory)",
    }


def test_a_file_is_taken_once_however_many_names_lead_to_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"docs/a.txt": "x"})
    (tmp_path / "docs" / "same.txt").symlink_to("a.txt")
    assert names(find_files([tmp_path / "docs", tmp_path / "docs" / "a.txt", tmp_path])) == ["docs/a.txt"]


def test_a_link_given_by_name_is_the_users_own_choice(tmp_path: Path) -> None:
    write_files(tmp_path, {"outside/a.txt": "x"})
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    assert names(find_files([tmp_path / "link"])) == ["a.txt"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x"})
    os.mkfifo(tmp_path / "pipe.txt")
    found = find_files([tmp_path])
    assert [(item.path, item.reason) for item in found.unreadable] == [("pipe.txt", "is not a plain file")]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_closed_file_is_listed_until_it_is_open(tmp_path: Path) -> None:
    """What counts as read is known by its size and time, and opening a file changes neither."""
    write_files(tmp_path, {"a.txt": "x", "closed.txt": "x"})
    (tmp_path / "closed.txt").chmod(0)
    found = find_files([tmp_path])
    (tmp_path / "closed.txt").chmod(0o600)
    assert (names(found), found.unreadable) == (
        ["a.txt"],
        (Unreadable("closed.txt", "cannot be opened (Permission denied)"),),
    )
    assert names(find_files([tmp_path])) == ["a.txt", "closed.txt"]


def test_the_index_inside_the_folder_is_left_out(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x", "index/data/passages.jsonl": "x"})
    assert names(find_files([tmp_path], exclude=tmp_path / "index")) == ["a.txt"]


def test_a_name_that_is_no_unicode_can_be_shown(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    (name,) = names(find_files([tmp_path]))
    assert name == "caf\\udce9.txt"


def test_a_changed_file_has_another_fingerprint(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x"})
    (before,) = find_files([tmp_path]).files
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    (touched,) = find_files([tmp_path]).files
    write_files(tmp_path, {"a.txt": "xy"})
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    (grown,) = find_files([tmp_path]).files
    assert len({before.fingerprint, touched.fingerprint, grown.fingerprint}) == 3


def test_a_path_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"missing: no such file or folder"):
        find_files([tmp_path / "missing"])
