"""A world on disk, and as passages in memory.

    DIR/pages/*.md                    one page each: `# Title`, then the text
    DIR/questions.{train,dev,test}.jsonl   FlashRAG fields: id, question, golden_answers, metadata
    DIR/world.json                    what it is; `complete` only after everything else is in place

All is written beside its place and moved there at the end, so a run that is killed leaves no half world that looks
whole. A folder that is not a world is never touched, and in a world's folder only the files above are replaced.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jade.corpus.world.model import World
from jade.errors import DocumentError
from jade.types import Passage, Question

FORMAT = 1
MANIFEST, PAGES, NEW, OLD = "world.json", "pages", ".new", ".old"


def world_corpus(world: World) -> list[Passage]:
    """Every page as one passage, in the order of the pages, without touching the disk."""
    return [Passage(page.name, page.title, page.text, f"{PAGES}/{page.name}.md") for page in world.pages]


def write_world(world: World, out: Path) -> None:
    """Write the world into `out`, in place of the world that is there. Raises DocumentError where it may not."""
    try:
        check_place(out)
        out.mkdir(parents=True, exist_ok=True)
        with _alone(out):
            _claim(out)
            _write_files(world, out / NEW)
            _note(out, world, complete=False)
            _move_in(out)
            _note(out, world, complete=True)
    except OSError as error:
        raise DocumentError(f"cannot write a world to {out}: {error.strerror or error}") from None


def check_place(out: Path) -> None:
    """Raise DocumentError unless `out` is absent, an empty folder or a world."""
    if not out.exists():
        return
    if not out.is_dir():
        raise DocumentError(f"{out} is a file; a world needs a folder")
    if any(out.iterdir()) and not is_world(out):
        raise DocumentError(f"{out} is not empty and not a world; choose another folder")


def is_world(folder: Path) -> bool:
    """Whether the folder was made by `write_world`, whole or interrupted."""
    try:
        return "complete" in json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def question_row(question: Question) -> dict[str, Any]:
    """A question as FlashRAG writes it."""
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.answers),
        "metadata": dict(question.metadata),
    }


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Nobody else writes here meanwhile: one of two would clear away what the other made, and call the rest whole."""
    folder = os.open(out, os.O_RDONLY)
    try:
        import fcntl

        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise DocumentError(f"{out} is being written by another process; wait for it to finish") from None
    except (ImportError, OSError):  # no such locks here: two writers at once are the user's to avoid
        pass
    try:
        yield
    finally:
        os.close(folder)


def _claim(out: Path) -> None:
    """Make the folder ours, and clear what an interrupted run left."""
    check_place(out)
    # Said before anything else is written: a run that is killed now has left a world, and not a stranger's folder.
    if not is_world(out):
        _replace(out / MANIFEST, {"format": FORMAT, "complete": False})
    for leftover in (NEW, OLD):
        shutil.rmtree(out / leftover, ignore_errors=True)


def _write_files(world: World, folder: Path) -> None:
    (folder / PAGES).mkdir(parents=True)
    for page in world.pages:
        (folder / PAGES / f"{page.name}.md").write_text(f"# {page.title}\n\n{page.text}\n", encoding="utf-8")
    for split, questions in world.splits.items():
        lines = (json.dumps(question_row(question), ensure_ascii=False) for question in questions)
        (folder / f"questions.{split}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _move_in(out: Path) -> None:
    (out / OLD).mkdir()
    # A folder cannot be renamed over one that holds files: the old pages step aside first.
    if (out / PAGES).exists():
        os.replace(out / PAGES, out / OLD / PAGES)
    for ready in sorted((out / NEW).iterdir()):
        os.replace(ready, out / ready.name)
    for emptied in (NEW, OLD):
        shutil.rmtree(out / emptied)


def _note(out: Path, world: World, *, complete: bool) -> None:
    sizes = {split: len(questions) for split, questions in world.splits.items()}
    about = {"country": world.country, "pages": len(world.pages), "questions": sizes, "seed": world.seed}
    _replace(out / MANIFEST, {"format": FORMAT, "complete": complete, **about})


def _replace(path: Path, data: dict[str, Any]) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, path)
