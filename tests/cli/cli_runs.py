"""`jade` as a user runs it: inside this process, through its own `main`, or as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from jade.cli.main import main
from patience import PATIENCE_SECONDS, running


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr; anything more or less is a failure."""
        (line,) = self.err.splitlines()
        assert self.out == ""
        assert "Traceback" not in line
        return line


def jade(*arguments: str | Path) -> Result:
    """Run a verb in this process."""
    out, err = StringIO(), StringIO()
    with _arguments(arguments), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            status: object = "main returned, though it always exits"
        except SystemExit as ending:
            status = ending.code or 0
    assert isinstance(status, int), status
    return Result(status, out.getvalue(), err.getvalue())


@contextmanager
def _arguments(arguments: tuple[str | Path, ...]) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["jade", *map(str, arguments)]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def start(
    *arguments: str | Path, cwd: Path, stderr: int = subprocess.PIPE, measured: bool = True, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """`python -m jade` as a process of its own, gone afterwards; `more` is added to its environment."""
    command = [sys.executable, "-m", "jade", *arguments]
    environment = {"PYTHONWARNINGS": "error", **more}
    with running(
        command, measured=measured, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr, env=environment
    ) as process:
        yield process


def jade_process(*arguments: str | Path, cwd: Path, **more: str) -> Result:
    with start(*arguments, cwd=cwd, stderr=subprocess.PIPE, measured=True, **more) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return Result(process.returncode, out, err)
