"""`runs/table.sh`: ten methods and the ceiling on the seven sets, and the report, by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluate_builders import LIBRARY, ONE_HOP, TWO_HOPS, write_questions
from title_model import serving_titles

from jade.cli.evaluate import SEVEN, TABLE
from patience import running, until

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


def start_and_kill(*words: object, out: Path) -> None:
    """The script and all that it started are killed as soon as a first question is done."""
    environment = {"JADE": f"{sys.executable} -m jade"}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with running([SCRIPT, *words], env=environment, measured=False, **quiet) as process:
        until(lambda: any(out.glob("*/*/records.jsonl")) or process.poll() is not None)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_whole_table_comes_out_of_one_command_also_when_it_was_killed_before(
    data: Path, model: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = (model, data, tmp_path / "index", out, 1, "--concurrency", 2)
    start_and_kill(*words, out=out)
    done = table(*words)
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
