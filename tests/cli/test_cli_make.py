"""The Makefile, by what it would do (`make -n`): nothing is installed here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user would: without what a make above us (`make test`) has put into the environment."""
    ours = ("MAKE", "MFLAGS", "VENV", "TORCH", "WORKERS", "COVERAGE", "ARGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def planned(goal: str, venv: Path, *settings: str) -> str:
    done = make("-n", goal, f"VENV={venv}", *settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = {name for line in re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE) for name in line.split()}
    listed = re.findall(r"^  make ([a-z-]+) +\S", make("help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted(targets - {"FORCE"})
    assert {"demo", "test"} <= targets


def test_the_demo_on_a_fresh_machine_takes_the_cpu_build_of_torch_first(tmp_path: Path) -> None:
    lines = planned("demo", tmp_path / "venv")
    order = ["-m venv", "--index-url https://download.pytorch.org/whl/cpu torch", "-e '.[local]'", "bin/jade demo"]
    places = [lines.index(step) for step in order]
    assert places == sorted(places)
    assert lines.count("-c constraints-cpu.txt") == 2
    assert "dev" not in lines.partition("bin/jade demo")[0].replace("/dev/null", "")


def test_another_torch_can_be_chosen(tmp_path: Path) -> None:
    lines = planned("demo", tmp_path / "venv", "TORCH=torch==2.11.0 --index-url URL")
    assert "pip install --quiet --disable-pip-version-check torch==2.11.0 --index-url URL" in lines
    assert "constraints-cpu.txt" not in lines


def test_tests_run_with_coverage_and_what_they_need(tmp_path: Path) -> None:
    lines = planned("test", tmp_path / "venv")
    assert "-e '.[local,dense,serve,dev]'" in lines
    assert re.search(r"pytest -n 2 .*--cov.*--cov-fail-under=90", lines)


def test_a_python_that_is_too_old_is_said(tmp_path: Path) -> None:
    done = make("demo", f"VENV={tmp_path / 'venv'}", "PYTHON=false")
    assert done.returncode
    assert "JADE needs Python 3.11 or newer" in done.stdout
    assert not (tmp_path / "venv").exists()


def test_what_every_change_must_pass_is_lint_and_tests() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert re.findall(r"^make (\w+)$", script, re.MULTILINE) == ["lint", "test"]


def test_pip_which_fetches_the_shipped_model_comes_with_local_models() -> None:
    """An environment that uv has made holds none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "pip" in project["optional-dependencies"]["local"]
