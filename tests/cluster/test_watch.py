"""A run in other processes is seen by its journal, and asked for by options that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jade.cli.main import app
from jade.cluster.watch import Reader
from jade.errors import ConfigError
from jade.learn.guard import Alarm
from jade.learn.monitor.journal import Journal


class Recorder:
    """Writes down what it is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        self.seen.append(("iteration", number, total, dict(figures)))

    def dev(self, number: int, figures: Mapping[str, float]) -> None:
        self.seen.append(("dev", number, dict(figures)))

    def alarm(self, number: int, alarm: Alarm, back_to: int, scale: float) -> None:
        self.seen.append(("alarm", number, str(alarm), back_to, scale))

    def remark(self, number: int, text: str) -> None:
        self.seen.append(("remark", number, text))


def test_what_the_journal_gains_is_shown_once_and_in_order(tmp_path: Path) -> None:
    journal, recorder = Journal(tmp_path), Recorder()
    journal.write("iteration", 1, {"reward": 0.1})
    reader = Reader(tmp_path / "metrics.jsonl")
    journal.write("dev", 1, {"reward": 0.2})
    journal.write("guard", 2, {"event": "kl", "detail": "far", "back_to": 1, "scale": 0.5})
    journal.write("mind", 2, {"event": "silence", "detail": "DS is quiet"})
    reader.show(recorder, 9)
    journal.write("iteration", 2, {"reward": 0.3})
    reader.show(recorder, 9)
    assert recorder.seen == [
        ("dev", 1, {"reward": 0.2}),
        ("alarm", 2, "kl: far", 1, 0.5),
        ("remark", 2, "DS is quiet"),
        ("iteration", 2, 9, {"reward": 0.3}),
    ]


def test_a_journal_that_was_cut_back_is_read_on_from_there_and_a_half_written_line_waits(tmp_path: Path) -> None:
    journal, recorder = Journal(tmp_path), Recorder()
    journal.write("iteration", 1, {"reward": 0.1})
    kept = journal.num_bytes
    journal.write("iteration", 2, {"reward": 0.2})
    reader = Reader(journal.path)
    journal.cut_back(kept)
    reader.show(recorder, 3)
    with journal.path.open("a") as file:
        file.write('{"kind": "dev", "iter')
    reader.show(recorder, 3)
    assert recorder.seen == []
    with journal.path.open("a") as file:
        file.write('ation": 2, "reward": 0.5}\n')
    reader.show(recorder, 3)
    assert recorder.seen == [("dev", 2, {"reward": 0.5})]


def test_a_journal_that_was_cut_back_and_has_grown_again_is_read_on_from_its_next_line(tmp_path: Path) -> None:
    """By learners that were started again and were quicker than the look."""
    journal, recorder = Journal(tmp_path), Recorder()
    journal.write("iteration", 1, {"reward": 0.1})
    reader = Reader(journal.path)
    journal.cut_back(0)
    journal.write("iteration", 1, {"reward": 0.1, "outcome": 0.25})
    journal.write("iteration", 2, {"reward": 0.2})
    reader.show(recorder, 3)
    assert recorder.seen == [("iteration", 2, 3, {"reward": 0.2})]


@pytest.mark.parametrize(("option", "value"), [("--workers", "2"), ("--address", "host:6379")])
def test_options_of_a_cluster_need_a_backend(tmp_path: Path, option: str, value: str) -> None:
    config = tmp_path / "run.toml"
    config.write_text("")
    result = CliRunner().invoke(app, ["train", str(config), option, value])
    assert isinstance(result.exception, ConfigError)
    assert f"{option} {value} needs --backend" in str(result.exception)
    assert not (tmp_path / "run").exists()
