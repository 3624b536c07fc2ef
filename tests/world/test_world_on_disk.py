"""A world on disk: whole or not there, never in place of something else."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jade.corpus.world import is_world, make_world, question_row, world_corpus, write_world
from jade.errors import DocumentError

WORLD = make_world(60, 40, 1)


def _complete(folder: Path) -> bool:
    return bool(json.loads((folder / "world.json").read_text())["complete"])


def test_what_is_written_is_what_was_made(tmp_path: Path) -> None:
    out = tmp_path / "a" / "world"
    write_world(WORLD, out)
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (out / "pages").iterdir()}
    assert pages == {page.name: f"# {page.title}\n\n{page.text}\n" for page in WORLD.pages}
    for split, questions in WORLD.splits.items():
        lines = (out / f"questions.{split}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [question_row(question) for question in questions]
    assert sorted(path.name for path in out.iterdir()) == [
        "pages",
        "questions.dev.jsonl",
        "questions.test.jsonl",
        "questions.train.jsonl",
        "world.json",
    ]
    assert _complete(out)


def test_rows_have_the_fields_of_flashrag() -> None:
    row = question_row(WORLD.train[0])
    assert list(row) == ["id", "question", "golden_answers", "metadata"]
    assert {"kind", "form", "hops", "workflow", "decomposition", "supporting_titles", "facts"} <= row["metadata"].keys()
    assert all(list(hop) == ["question", "answer", "support"] for hop in row["metadata"]["decomposition"])


def test_the_corpus_in_memory_is_the_corpus_on_disk(tmp_path: Path) -> None:
    write_world(WORLD, tmp_path)
    for passage in world_corpus(WORLD):
        assert (tmp_path / passage.source).read_text(encoding="utf-8") == f"# {passage.title}\n\n{passage.text}\n"
    assert len({passage.id for passage in world_corpus(WORLD)}) == len(WORLD.pages)


def test_a_world_is_replaced_and_what_else_lies_there_is_kept(tmp_path: Path) -> None:
    write_world(make_world(50, 10, 9), tmp_path)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "mine").write_text("kept")
    write_world(WORLD, tmp_path)
    assert {path.stem for path in (tmp_path / "pages").iterdir()} == {page.name for page in WORLD.pages}
    assert (tmp_path / "index" / "mine").read_text() == "kept"
    assert not (tmp_path / ".old").exists()


@pytest.mark.parametrize("manifest", [None, "no json", "[]", "{}", "3"])
def test_a_folder_that_is_not_a_world_is_left_alone(tmp_path: Path, manifest: str | None) -> None:
    (tmp_path / "thesis.md").write_text("years of work")
    if manifest is not None:
        (tmp_path / "world.json").write_text(manifest)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DocumentError, match="not empty and not a world; choose another folder"):
        write_world(WORLD, tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "world").write_text("")
    with pytest.raises(DocumentError, match="is a file"):
        write_world(WORLD, tmp_path / "world")
    with pytest.raises(DocumentError, match="cannot write a world"):
        write_world(WORLD, tmp_path / "world" / "inside")


KILLED = """
import os, sys
from pathlib import Path
from jade.corpus.world import make_world, write_world
from jade.corpus.world import write
place, left = sys.argv[1], int(sys.argv[2])
def counted(real):
    def step(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return real(*args, **kwargs)
    return step
os.replace = counted(os.replace)
Path.write_text = counted(Path.write_text)
Path.mkdir = counted(Path.mkdir)
write_world(make_world(50, 20, 2), Path(place))
"""


def _run_killed(out: Path, steps: int) -> int:
    return subprocess.run([sys.executable, "-c", KILLED, str(out), str(steps)], check=False).returncode


@pytest.mark.parametrize("steps", [0, 1, 3, 20, 57, 59, 61, 63])
def test_a_killed_run_leaves_nothing_that_looks_whole_and_the_next_run_mends_it(tmp_path: Path, steps: int) -> None:
    out = tmp_path / "world"
    assert _run_killed(out, steps) == 9
    assert not (is_world(out) and _complete(out))
    if (out / "pages").exists():
        assert len(os.listdir(out / "pages")) == 50
    write_world(WORLD, out)
    assert _complete(out)
    assert len(os.listdir(out / "pages")) == 60


def test_a_run_killed_while_preparing_leaves_the_old_world_whole(tmp_path: Path) -> None:
    write_world(WORLD, tmp_path)
    assert _run_killed(tmp_path, 30) == 9
    assert _complete(tmp_path)
    assert {path.stem for path in (tmp_path / "pages").iterdir()} == {page.name for page in WORLD.pages}


def test_a_world_that_another_process_is_writing_is_left_to_it(tmp_path: Path) -> None:
    """Of two, one cleared away the pages that the other had made so far, which then called the rest complete."""
    write_world(WORLD, tmp_path)
    (tmp_path / ".new").mkdir()
    writer = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(writer, fcntl.LOCK_EX)
    try:
        with pytest.raises(DocumentError, match="is being written by another process; wait for it to finish"):
            write_world(WORLD, tmp_path)
        assert (tmp_path / ".new").exists()
    finally:
        os.close(writer)
    write_world(WORLD, tmp_path)
    assert not (tmp_path / ".new").exists()
