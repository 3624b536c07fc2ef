"""`jade world`: from three numbers to a folder, or one clear line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from jade.cli.world import command
from jade.corpus.world import make_world
from jade.errors import ConfigError, DocumentError

app = typer.Typer()
app.command()(command)


def _run(*options: str) -> str:
    result = CliRunner().invoke(app, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_world_is_written_with_a_line_for_each_kind(tmp_path: Path) -> None:
    output = _run("--out", str(tmp_path / "w"), "--pages", "80", "--questions", "100", "--seed", "5")
    lines = output.splitlines()
    assert "80 pages, 100 questions" in lines[0]
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == ["parallel", "serial", "single", "yesno"]
    assert any("single: 20 train, 3 dev, 3 test" in line for line in lines)
    rows = (tmp_path / "w" / "questions.train.jsonl").read_text().splitlines()
    assert [json.loads(row)["question"] for row in rows] == [q.text for q in make_world(80, 100, 5).train]


def test_a_world_without_questions_is_a_corpus(tmp_path: Path) -> None:
    assert "0 questions" in _run("--out", str(tmp_path / "w"), "--pages", "50", "--questions", "0")
    assert (tmp_path / "w" / "questions.test.jsonl").read_text() == ""


def test_few_questions_leave_dev_and_test_empty(tmp_path: Path) -> None:
    output = _run("--out", str(tmp_path / "w"), "--pages", "50", "--questions", "3")
    assert "1 train, 0 dev, 0 test" in output


def test_a_strange_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DocumentError, match="not a world"):
        _run("--out", str(tmp_path), "--pages", "7")


@pytest.mark.parametrize("pages", [-1, 0, 49, 100_001])
def test_a_size_that_cannot_be_made_is_refused(pages: int) -> None:
    with pytest.raises(ConfigError, match=f"{pages} pages cannot be made; give from 50 to 100000 pages"):
        make_world(pages, 10, 0)


def test_a_negative_number_of_questions_is_refused() -> None:
    with pytest.raises(ConfigError, match="-1 questions"):
        make_world(50, -1, 0)


@pytest.mark.parametrize(("pages", "questions"), [(50, 1000), (100, 2000)])
def test_too_few_pages_for_the_questions_gives_advice_that_works(pages: int, questions: int) -> None:
    with pytest.raises(ConfigError, match="pages are too few") as caught:
        make_world(pages, questions, 0)
    advice = re.search(r"at most (\d+) or give about (\d+) pages", str(caught.value))
    assert advice is not None
    assert len(make_world(pages, int(advice[1]), 0).questions) == int(advice[1])
    assert len(make_world(int(advice[2]), questions, 0).questions) == questions
