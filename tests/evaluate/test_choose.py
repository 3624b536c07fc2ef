"""`runs/choose.py` and `runs/found.py`: a team is chosen by what it scored on dev, and what trains it is told apart."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_fixture import RIGHT, WRONG, write_answers
from typer.testing import CliRunner

from jade.cli.main import app
from jade.learn.questions import is_in_part, read_question_file
from jade.learn.warmstart.gold import lesson_of
from jade.learn.warmstart.leaks import drop_leaks
from jade.types import Question

RUNS = Path(__file__).parents[2] / "runs"


def call(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUNS / script, *map(str, words)], capture_output=True, text=True)


def write_run(folder: Path, answers: dict[str, list[str]], split: str = "dev") -> Path:
    """A finished run on a split."""
    write_answers(folder, answers, split=split)
    for benchmark, given in answers.items():
        (folder / benchmark / "vanilla-rag" / "asked.json").write_text(json.dumps({"questions": len(given)}))
    return folder


@pytest.fixture
def teams(tmp_path: Path) -> Path:
    write_run(tmp_path / "many", {"nq": [RIGHT, RIGHT, RIGHT, WRONG], "hotpotqa": [WRONG]})
    write_run(tmp_path / "even", {"nq": [RIGHT, WRONG, WRONG, WRONG], "hotpotqa": [RIGHT]})
    write_run(tmp_path / "none", {"nq": [WRONG] * 4, "hotpotqa": [WRONG]})
    return tmp_path


def test_the_best_mean_of_benchmarks_is_taken_whatever_their_sizes(teams: Path) -> None:
    done = call("choose.py", *(f"{name}={teams / name}" for name in ("none", "many", "even")))
    assert (done.stdout, done.returncode) == ("even\n", 0)
    assert done.stderr.splitlines() == ["none: 0.00", "many: 37.50", "even: 62.50"]


def test_the_first_that_is_low_enough_is_taken_or_else_the_last(teams: Path) -> None:
    pairs = [f"{name}={teams / name},{teams / 'even'}" for name in ("even", "many", "none")]
    assert call("choose.py", "--at-most", -1, *pairs).stdout == "many\n"
    assert call("choose.py", "--at-most", -50, *pairs).stdout == "none\n"
    assert call("choose.py", "--at-most", -99, *pairs).stdout == "none\n", "nothing is that low"


def test_the_team_that_ships_is_written_down_once_all_are_measured(tmp_path: Path) -> None:
    dev = tmp_path / "out" / "ship" / "dev"
    write_run(dev / "one", {"nq": [WRONG]})
    write_run(dev / "other", {"nq": [RIGHT]})
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def choose(*names: str) -> subprocess.CompletedProcess[str]:
        command = [str(RUNS / "ship.sh"), "choose", *names]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PATH": path})

    assert choose("one", "other").stdout == "other\n"
    failed = choose("one", "unmeasured")
    assert failed.returncode != 0, failed.stderr
    assert (dev.parent / "chosen").read_text() == "other\n"


def test_nothing_is_chosen_by_test_questions_nor_by_half_a_run(teams: Path) -> None:
    write_run(teams / "tested", {"nq": [RIGHT]}, split="test")
    (teams / "even" / "nq" / "vanilla-rag" / "asked.json").write_text('{"questions": 5}')
    (teams / "nothing").mkdir()
    for name, complaint in {
        "tested": "nothing may be chosen by those",
        "even": "has 4 of 5 records",
        "nothing": "is not the folder of a run",
    }.items():
        done = call("choose.py", f"a={teams / 'many'}", f"b={teams / name}")
        assert (done.returncode, done.stdout) == (1, "")
        assert complaint in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_what_was_asked_other_questions_is_not_compared(teams: Path) -> None:
    write_run(teams / "fewer", {"nq": [RIGHT], "hotpotqa": [RIGHT]})
    done = call("choose.py", f"a={teams / 'many'}", f"b={teams / 'fewer'}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "was asked other questions than" in done.stderr


def test_questions_keep_the_pages_of_their_answers_so_that_leaks_by_evidence_are_seen(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "emma.txt").write_text("Emma is a novel by Jane Austen.")
    (pages / "rain.txt").write_text("Rain is water that falls from clouds.")
    assert CliRunner().invoke(app, ["index", str(pages), "--out", str(tmp_path / "index")]).exit_code == 0
    asked = {
        "a": ("Who wrote Emma?", "Jane Austen"),
        "b": ("What is rain?", "a colour"),
        "c": ("Is rain water?", "yes"),
        "d": ("What falls from clouds?", "water"),
        "e": ("who wrote the novel emma", "Jane Austen"),
    }
    rows = [{"id": key, "question": text, "golden_answers": [gold]} for key, (text, gold) in asked.items()]
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "set.train.jsonl").write_text("".join(lines))
    (tmp_path / "known.jsonl").write_text(lines[-1])
    out = tmp_path / "set.found.jsonl.gz"
    words = [tmp_path / "set.train.jsonl", "--index", tmp_path / "index", "--out", out]
    done = call("found.py", *words, "--apart", tmp_path / "known.jsonl")
    assert done.stdout == "2 of 5 questions: 1 known, 2 not found\n", done.stderr
    found = read_question_file(out)
    assert {each.id: each.metadata["supporting_titles"] for each in found} == {"a": ["emma"], "d": ["rain"]}
    held_out = Question("t", "By whom is Emma?", ("Jane Austen",), "nq", {"supporting_titles": ["Emma"]})
    kept, leaks = drop_leaks([lesson_of(each) for each in found], [held_out])
    assert [lesson.question.id for lesson in kept] == ["d"]
    assert leaks.dropped == {"evidence": 1}

    call("found.py", *words, "--part", 0, 0.5)
    with gzip.open(out, "rt") as file:
        ids = {json.loads(line)["id"] for line in file}
    assert ids == {each.id for each in found if is_in_part(each, (0.0, 0.5))} | (
        {"e"} if is_in_part(Question("e", "", (), ""), (0.0, 0.5)) else set()
    )
