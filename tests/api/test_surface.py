"""What `import jade` gives: each name once, loaded when it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jade


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
