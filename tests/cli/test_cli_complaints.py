"""What is the user's to mend is said in exactly one line on stderr, with status 2 and without a traceback."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from answering_server import Server, write_documents
from cli_runs import jade, jade_process

SOMEWHERE = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--set", "budget.round=4"], "budget.round: no such setting"),
        (["--set", "budget.rounds=0"], "budget.rounds: Input should be greater than or equal to 1 (given: 0)"),
        (["--set", "budget.rounds=many"], "budget.rounds: Input should be a valid integer"),
        (["--set", "budget=3"], "budget: Input should be a valid dictionary"),
        (["--set", "budget.rounds.more=3"], "budget.rounds: Input should be a valid integer (given: {'more': 3})"),
        (["--set", "rounds"], "override 'rounds' is not of the form section.field=value"),
        (["--set", "=3"], "override '=3' is not of the form section.field=value"),
        (["--set", "seed=1", "--set", "seed.x=3"], "seed is not a section"),
        (["--set", "roles.ZZ.model=x"], "roles.ZZ: no such role; there are P, QDS, QDP, QR, DS, AG, AS"),
        (["--set", 'team.workflows=["DS,AG"]'], "DS,AG is not a legal workflow: DS needs R before it"),
        (["--set", 'team.extensions=["no.py"]'], "team.extensions: no.py cannot be loaded: FileNotFoundError"),
        (["--set", "team.prompts=nowhere"], "team.prompts: nowhere is not a folder"),
        (["--config", "no.toml"], "config no.toml: No such file or directory"),
        (["--model", "http://"], "is no http(s) URL"),
        (["--model", "http://host:port/v1"], "backbone.model is no usable URL"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(options: list[str], complaint: str, index: Path) -> None:
    done = jade("ask", "Who?", "--index", index, "--model", SOMEWHERE, *options)
    assert done.status == 2
    assert done.complaint.startswith("jade: ")
    assert complaint in done.complaint
    assert not Path("traces.jsonl").exists()


@pytest.mark.parametrize("name", ["no-such-model", "ftp://host/model", "./no/such/folder", "no.gguf"])
def test_a_model_that_cannot_be_had_is_named(name: str, index: Path) -> None:
    done = jade("ask", "Who?", "--index", index, "--model", name)
    assert done.status == 2
    assert name in done.complaint


@pytest.mark.parametrize("name", ["nowhere", "it's 'odd'", 'say "x"', "[bold]", "back\\slash"])
def test_an_index_that_is_not_there_is_named_as_it_was_given(name: str) -> None:
    done = jade("ask", "Who?", "--index", name, "--model", SOMEWHERE)
    assert done.status == 2
    assert "no such folder; make it with `jade index PATH --out " in done.complaint
    assert name in done.complaint or shlex.quote(name) in done.complaint


def test_no_index_at_all_is_said() -> None:
    done = jade("ask", "Who?", "--model", SOMEWHERE)
    assert (done.status, "retrieval.index is not set" in done.complaint) == (2, True)


def test_a_folder_that_is_no_index_is_said(tmp_path: Path) -> None:
    done = jade("ask", "Who?", "--index", tmp_path, "--model", SOMEWHERE)
    assert (done.status, "has no manifest.json" in done.complaint) == (2, True)


def test_a_damaged_index_is_said(index: Path, tmp_path: Path, server: Server) -> None:
    copy = shutil.copytree(index, tmp_path / "copy")
    (copy / "manifest.json").write_text("{")
    done = jade("ask", "Who?", "--index", copy, "--model", server.url)
    assert done.status == 2
    assert "manifest.json" in done.complaint


@pytest.mark.parametrize("question", ["", "  \n "])
def test_an_empty_question_is_refused(question: str, index: Path) -> None:
    done = jade("ask", question, "--index", index, "--model", SOMEWHERE)
    assert (done.status, "the question is empty" in done.complaint) == (2, True)


def test_a_trace_file_that_cannot_be_written_is_found_out_before_any_work(index: Path, server: Server) -> None:
    Path("taken").mkdir()
    Path("file").touch()
    for place in ("taken", "file/traces.jsonl"):
        done = jade("ask", "Who?", "--index", index, "--model", server.url, "--trace", place)
        assert done.status == 2
        assert f"--trace {place}: " in done.complaint
        assert "name another file, or /dev/null to keep none" in done.complaint
    assert server.calls == []


def test_a_line_break_in_what_is_complained_about_stays_one_line() -> None:
    done = jade("ask", "Who?", "--index", "a\nb\x1b[31mc", "--model", SOMEWHERE)
    assert "a b\N{REPLACEMENT CHARACTER}[31mc" in done.complaint


def test_a_process_of_its_own_complains_in_one_line_too(tmp_path: Path) -> None:
    done = jade_process("ask", "Who?", "--index", "nowhere", cwd=tmp_path)
    assert done.status == 2
    assert done.complaint.startswith("jade: index nowhere: no such folder")


@pytest.mark.parametrize("most_bytes", [100, 3000])
def test_a_disk_that_is_full_is_one_line_and_leaves_nothing_half_written(most_bytes: int, tmp_path: Path) -> None:
    """By the limit on the size of a file, which writing meets as it meets a full disk."""
    write_documents(tmp_path / "docs")
    (tmp_path / "docs" / "long.txt").write_text("".join(f"Word{number} is here. " for number in range(300)))
    command = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most_bytes},) * 2)"
    start = f"import sys; {command}; from jade.cli.main import main; main()"
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", start, "index", "docs"],
        cwd=tmp_path,
        env=unmeasured,  # what is measured writes files of its own
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("jade: not everything could be written (")
    assert line.endswith("); make room and run it again")
    assert [path.name for path in (tmp_path / "index").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "arguments", [["ask"], ["nonsense"], ["ask", "Who?", "--nonsense"], ["ask", "a", "--seed", "x"]]
)
def test_a_misspelt_command_shows_how_it_is_used(arguments: list[str]) -> None:
    done = jade(*arguments)
    assert (done.status, done.out) == (2, "")
    assert "Usage: jade" in done.err
    assert "Traceback" not in done.err
