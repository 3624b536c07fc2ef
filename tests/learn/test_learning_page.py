"""The files that docs/learning.md shows are what they are said to be."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from learn_builders import make_step, make_trace
from learn_runs import WordRetriever

from jade.config import Config, TeamConfig, load_config
from jade.learn.measure import ask, find_measure
from jade.learn.monitor.journal import Journal
from jade.team.roles import Memory, ToolSpec
from jade.team.team import build_team
from jade.types import Note, Passage

PAGE = Path(__file__).parents[2] / "docs" / "learning.md"


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A folder with every file of the page that says its name."""
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


async def test_the_outcome_is_a_measure(shown: Path) -> None:
    measure = find_measure(f"{shown}/worth.py:found_and_cited")
    assert await ask([make_trace([make_step(1)])], measure) == [0.8]


async def test_the_tool_brings_a_note_and_stands_in_plans(shown: Path) -> None:
    extensions = (str(shown / "years.py"),)
    team = build_team(TeamConfig(extensions=extensions, workflows=("R,YR,AG", "R,AG")))
    tool = team.members["YR"]
    assert isinstance(tool, ToolSpec)
    memory = Memory("When?", passages=(Passage("1", "Mill", "Built in 1871, burnt in 1790."),))
    assert await tool.run(memory, WordRetriever([]), 5) == Note("years: 1790, 1871")


def test_the_tracker_sends_every_figure(shown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[object]] = []

    class FakeRun:
        def __init__(self, project: str, name: str) -> None:
            runs.append([project, name])

        def log(self, figures: dict[str, float]) -> None:
            runs[-1].append(figures)

        def finish(self) -> None:
            runs[-1].append("finished")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=FakeRun))
    journal = Journal(shown, (f"{shown}/my_wandb.py:open_board",))
    journal.write("iteration", 1, {"reward": 0.5, "detail": "words"})
    journal.close()
    assert runs == [["jade", f"{shown.name}-from-0", {"iteration/reward": 0.5, "iteration": 1}, "finished"]]


def test_the_settings_are_settings(tmp_path: Path) -> None:
    [text] = re.findall(r"```toml\n(\[backbone\].*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    config = load_config(tmp_path / "mine.toml")
    assert isinstance(config, Config)
    assert config.learn.credit.rule == "group"
