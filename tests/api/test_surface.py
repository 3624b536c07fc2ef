"""What `import jade` gives: each name once, loaded when it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest

import jade
from jade.cli.index import command


@pytest.mark.parametrize("name", jade.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(jade, name).__module__.startswith("jade.")
    assert name in dir(jade)


def test_no_name_is_that_of_a_room() -> None:
    """Importing a room puts it into the package under its name, in the place of what was there."""
    rooms = {path.stem for path in Path(jade.__file__).parent.iterdir()}
    assert not rooms & set(jade.__all__)


def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_tema'"):
        jade.open_tema  # noqa: B018


def test_indexing_takes_the_options_of_its_verb() -> None:
    def options(function: Callable[..., object]) -> set[str]:
        return set(signature(function).parameters)

    assert options(command) - options(jade.index) == {"shard_size", "list_all", "verify"}
    assert options(jade.index) <= options(command)


def test_an_option_of_indexing_has_its_effect(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ashford. " * 400)
    (tmp_path / "b.txt").write_text("Corby.")
    report = jade.index(tmp_path, tmp_path / "index", max_megabytes=0.001)
    assert [path for path, _ in report.unreadable] == ["a.txt"]


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, jade; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"torch", "numpy", "pydantic", "rich", "httpx", "asyncio"} & set(loaded)


def test_asking_needs_no_torch_until_a_model_does() -> None:
    code = """
import sys, jade
with jade.open_team(lambda query, k: ["Corby"], lambda prompt: "<answer>Corby</answer>") as team:
    assert team.ask("Where?").answer == "Corby"
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]
