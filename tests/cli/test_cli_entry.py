"""`jade` itself: every way to start it, what it lists, what it does not load, and the pages written from it."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_runs import jade, jade_process

from jade.cli import main as main_module
from jade.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]


def test_help_lists_every_verb() -> None:
    done = jade("--help")
    assert done.status == 0
    for verb in (*VERBS, "trace"):
        assert re.search(rf"\b{verb}\b", done.out)


@pytest.mark.parametrize("verb", [*VERBS, "trace show"])
def test_every_verb_explains_itself(verb: str) -> None:
    done = jade(*verb.split(), "--help")
    assert (done.status, done.err) == (0, "")
    assert f"Usage: jade {verb}" in done.out


def test_every_verb_that_has_a_file_is_registered() -> None:
    files = {path.stem for path in (ROOT / "src/jade/cli").glob("*.py")}
    registered = {command.__module__.rpartition(".")[2] for command in VERBS.values()} | {"trace"}
    assert files - registered == {"__init__", "main", "options"}


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    done = jade_process("--help", cwd=tmp_path)
    assert done.status == 0
    assert "answers questions over your documents" in " ".join(done.out.split())


def test_the_version_is_that_of_the_package() -> None:
    assert jade("--version").out.strip() == importlib.metadata.version("jade-team")


def test_help_loads_nothing_heavy() -> None:
    heavy = {
        "torch",
        "transformers",
        "numpy",
        "bm25s",
        "numba",
        "httpx",
        "fastapi",
        "pydantic",
        "matplotlib",
        "asyncio",
    }
    code = (
        "import sys\nfrom jade.cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_the_pages_written_from_the_code_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts/make_docs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def shown_commands() -> list[tuple[str, str]]:
    """Every `jade …` line of the pages' code blocks, with its page."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    lines = [
        (page.name, line.removeprefix("$ "))
        for page in pages
        for block in re.findall(r"```.*?\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.splitlines()
    ]
    return [(page, line) for page, line in lines if line.startswith("jade ")]


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_a_command_shown_on_a_page_exists_with_its_options(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(main_module.app)
    while words and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= {*known, "--help"}, page


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = jade("world", "--out", tmp_path / "file" / "world", "--pages", "50", "--questions", "0")
    assert done.status == 2
    assert str(tmp_path / "file") in done.complaint


def run_without(package: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`jade` where a package is not installed."""
    code = f"import sys; sys.modules[{package!r}] = None; from jade.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


def test_an_extra_that_is_not_installed_is_named_with_the_remedy(index: Path) -> None:
    done = run_without("torch", "ask", "Who?", "--index", index)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "jade: the package torch is not installed; pip install 'jade-team[local]'\n"


@pytest.mark.parametrize("model", ["no-such-model", "localhost:11434/v1"])
def test_a_mistyped_model_is_said_before_torch_is_loaded(index: Path, model: str) -> None:
    done = run_without("torch", "ask", "Who?", "--index", index, "--model", model)
    assert done.returncode == 2
    assert done.stderr.startswith(f"jade: model {model!r} is no shipped name")
    assert "no URL (http://…)" in done.stderr


def test_what_everyone_needs_is_missed_with_a_traceback(index: Path) -> None:
    done = run_without("numpy", "ask", "Who?", "--index", index, "--model", "http://127.0.0.1:9/v1")
    assert "Traceback" in done.stderr


def test_a_defect_of_ours_is_not_dressed_up_as_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(prog_name: str) -> None:
        raise ConnectionResetError("not about a file")

    monkeypatch.setattr(main_module, "app", broken)
    with pytest.raises(ConnectionResetError):
        main_module.main()
