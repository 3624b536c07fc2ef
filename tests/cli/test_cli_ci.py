"""`.ci/run`, by what it would do: in a copy of its own, with commands that only write down how they were called."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci/run"
BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="no bash on this machine")
REAL = ("env", "dirname", "bash", "sh")
"""Commands that the script may really use."""
CHECKS = ["make lint", "make test", "make kernel-test"]
APT = "apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10"
BRINGING = [
    f"{APT} update",
    f"{APT} install -y --no-install-recommends --download-only chromium",
    f"{APT} install -y --no-install-recommends chromium",
]


@dataclass
class Machine:
    """A machine that has only these commands, each with the status it ends in."""

    folder: Path
    commands: dict[str, int] = field(default_factory=dict)
    user: int = 0

    def run(self, **environment: str) -> tuple[int, list[str], str]:
        """The script's status, the commands it called, and what it printed."""
        (self.folder / ".ci").mkdir()
        shutil.copy(SCRIPT, self.folder / ".ci/run")
        tools, calls = self.folder / "tools", self.folder / "calls"
        tools.mkdir()
        calls.touch()
        for name in REAL:
            (tools / name).symlink_to(shutil.which(name) or "")
        self._command(tools / "id", f"echo {self.user}")
        self._command(tools / "timeout", 'shift; "$@"')
        for name, status in self.commands.items():
            self._command(tools / name, f'echo "{name} $*" >> "{calls}"; exit {status}')
        self._command(tools / "sudo", f'echo "sudo $1" >> "{calls}"; shift; "$@"')
        done = subprocess.run(
            [BASH, self.folder / ".ci/run"], env={"PATH": str(tools), **environment}, capture_output=True, text=True
        )
        return done.returncode, calls.read_text().splitlines(), done.stdout + done.stderr

    def _command(self, path: Path, body: str) -> None:
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(0o755)


def test_a_browser_is_brought_where_root_can(tmp_path: Path) -> None:
    assert Machine(tmp_path, {"make": 0, "apt-get": 0}).run() == (0, [*BRINGING, *CHECKS], "")


def test_a_browser_is_brought_in_ci_where_sudo_asks_nothing(tmp_path: Path) -> None:
    status, calls, _ = Machine(tmp_path, {"make": 0, "apt-get": 0}, user=1000).run(CI="true")
    assert status == 0
    assert [call for call in calls if call != "sudo -n"] == [*BRINGING, *CHECKS]
    assert calls.count("sudo -n") == 3


@pytest.mark.parametrize(
    ("commands", "user", "environment"),
    [
        ({"apt-get": 0, "chromium": 0}, 0, {}),
        ({"apt-get": 0}, 0, {"JADE_CHROMIUM": "/opt/chrome"}),
        ({"apt-get": 0}, 1000, {}),
        ({}, 0, {}),
    ],
    ids=["there is one", "one is named", "a user's own machine", "no Debian"],
)
def test_nothing_is_installed_where_it_is_not_needed_or_not_ours_to_do(
    tmp_path: Path, commands: dict[str, int], user: int, environment: dict[str, str]
) -> None:
    assert Machine(tmp_path, {"make": 0, **commands}, user).run(**environment) == (0, CHECKS, "")


def test_a_browser_that_cannot_be_had_fails_nothing_and_says_nothing(tmp_path: Path) -> None:
    status, calls, said = Machine(tmp_path, {"make": 0, "apt-get": 100}).run()
    assert (status, calls, said) == (0, [*BRINGING[:2], *CHECKS], "")


def test_a_check_that_fails_ends_the_run_with_its_status(tmp_path: Path) -> None:
    assert Machine(tmp_path, {"make": 2, "chromium": 0}).run() == (2, ["make lint"], "")
