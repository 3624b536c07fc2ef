"""Trackers: figures reach TensorBoard, trackio and what users bring, and no tracker can end a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from learn_faults import FaultyLearner, lose_a_weight
from learn_runs import make_config, make_run

from jade.errors import ConfigError, TrainingStopped
from jade.learn.monitor.journal import Journal, read_journal

OWN = """
from pathlib import Path

class Lines:
    def __init__(self, folder, first_new):
        self.path = folder / "own.txt"
        self.add(f"from {first_new}")

    def add(self, text):
        with self.path.open("a") as file:
            file.write(text + "\\n")

    def write(self, kind, iteration, figures):
        if figures.get("reward") == 0.25:
            raise OSError("the server is gone")
        self.add(f"{kind} {iteration} {figures}")

    def close(self):
        self.add("closed")
"""


def write_run(folder: Path, tracker: str, iterations: range, mark: int = 0, goes_on: int = 0) -> int:
    """A start of a run that writes these iterations; gives the size of its journal after the first two."""
    journal, size = Journal(folder, (tracker,)), 0
    journal.cut_back(mark, goes_on)
    for iteration in iterations:
        journal.write("iteration", iteration, {"reward": 0.5, "note": "text is left out"})
        size = journal.num_bytes if iteration == iterations.start + 1 else size
    journal.close()
    return size


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(OWN)
    return f"{tmp_path}/mine.py:Lines"


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "never saved"])
def test_tensorboard_shows_every_iteration_of_a_resumed_run_once(tmp_path: Path, saved: bool) -> None:
    accumulator: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    size = write_run(tmp_path, "tensorboard", range(4))
    write_run(tmp_path, "tensorboard", range(2 if saved else 0, 4), *((size, 1) if saved else ()))
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert board.Tags()["scalars"] == ["iteration/reward"]
    assert [event.step for event in board.Scalars("iteration/reward")] == [0, 1, 2, 3]


def test_trackio_keeps_a_run_that_goes_on_as_another_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    size = write_run(tmp_path / "joint", "trackio", range(4))
    write_run(tmp_path / "joint", "trackio", range(2, 4), size, 1)
    steps = {
        name: [row["step"] for row in SQLiteStorage.get_logs("jade", name) if row["iteration/reward"] == 0.5]
        for name in ("joint", "joint from 2")
    }
    assert steps == {"joint": [0, 1, 2, 3], "joint from 2": [2, 3]}
    assert capsys.readouterr().out == "", "greetings would tear the live table"


def test_a_function_of_ones_own_is_told_where_a_run_goes_on(tmp_path: Path, own: str) -> None:
    size = write_run(tmp_path, own, range(2))
    write_run(tmp_path, own, range(2, 3), size, 1)
    assert (tmp_path / "own.txt").read_text().splitlines() == [
        "from 0",
        "iteration 0 {'reward': 0.5}",
        "iteration 1 {'reward': 0.5}",
        "closed",
        "from 2",
        "iteration 2 {'reward': 0.5}",
        "closed",
    ]


def test_a_tracker_that_fails_is_let_go_and_the_run_goes_on(
    tmp_path: Path, own: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path, (own,))
    with caplog.at_level(logging.WARNING):
        for reward in (0.5, 0.25, 0.125):
            journal.write("iteration", 1, {"reward": reward})
    journal.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        f"learn.trackers: {own} failed and gets no more figures (OSError: the server is gone); "
        "metrics.jsonl has them all"
    )
    assert (tmp_path / "own.txt").read_text().splitlines() == ["from 0", "iteration 1 {'reward': 0.5}"]
    assert [row["reward"] for row in read_journal(tmp_path)] == [0.5, 0.25, 0.125]


async def test_trackers_get_the_last_figures_of_a_run_that_the_guard_ends(
    tiny_model: Path, tmp_path: Path, own: str
) -> None:
    config = make_config(tiny_model, {"learn": {"trackers": [own], "guard": {"patience": 1}}})
    with pytest.raises(TrainingStopped):
        await make_run(config, tmp_path, learner=FaultyLearner(config, lose_a_weight, at=1, times=1)).train()
    first, *written, last = (tmp_path / "own.txt").read_text().splitlines()
    assert (first, [line.split()[0] for line in written], last) == ("from 0", ["iteration", "guard"], "closed")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("wandb", "'wandb' is none of tensorboard, trackio and not package.module:function"),
        ("nowhere.py:board", "cannot be loaded: FileNotFoundError"),
    ],
)
def test_an_unknown_tracker_is_named_before_anything_is_trained(tmp_path: Path, name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=r"learn\.trackers") as caught:
        Journal(tmp_path, (name,))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_tracker_whose_package_is_missing_names_its_extra(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"the package {name} is not installed; pip install 'jade-team\[{name}\]'"):
        Journal(tmp_path, (name,))
