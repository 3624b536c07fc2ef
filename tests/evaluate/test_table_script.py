"""`runs/table.sh`: ten methods and the ceiling on the seven sets, and the report, by one command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from evaluate_builders import LIBRARY, ONE_HOP, TWO_HOPS, write_questions
from title_model import serving_titles

from jade.cli.evaluate import SEVEN, TABLE

SCRIPT = Path(__file__).resolve().parents[2] / "runs/table.sh"


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with serving_titles() as url:
        yield url


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in SEVEN.split(","):
        write_questions(tmp_path / f"data/{name}.test.jsonl", [replace(q, dataset=name) for q in (ONE_HOP, TWO_HOPS)])
    pages = [{"id": p.id, "title": p.title, "text": p.text} for p in LIBRARY]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    jade("index", tmp_path / "pages.jsonl", "--out", tmp_path / "index")
    return tmp_path / "data"


def jade(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "jade", *map(str, words)], check=True, capture_output=True)


def table(*words: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JADE": f"{sys.executable} -m jade"}
    return subprocess.run([SCRIPT, *map(str, words)], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_whole_table_comes_out_of_one_command(data: Path, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = table(model, data, tmp_path / "index", out, 1, "--concurrency", 8)
    assert done.returncode == 0, done.stderr
    report = (out / "report/report.md").read_text()
    assert report.startswith("# 11 methods on 7 benchmarks\n")
    assert "| method | NQ | PopQA | AmbigQA | HotpotQA | 2Wiki | MuSiQue | Bamboogle | single-hop |" in report
    for method in (*TABLE.split(","), "oracle"):
        for benchmark in SEVEN.split(","):
            assert len((out / benchmark / method / "records.jsonl").read_text().splitlines()) == 1
    assert "MAO-ARAG, Executors only and JADE gave the same answers throughout" in report


def test_without_its_words_the_script_says_how_it_is_called() -> None:
    done = table("only-a-model")
    assert done.returncode == 2
    assert done.stderr.splitlines()[2] == "  runs/table.sh MODEL DATA INDEX OUT [LIMIT] [options of jade eval ...]"
