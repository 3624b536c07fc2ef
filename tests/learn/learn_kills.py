"""A training run as a process that is killed with SIGKILL, resumed, and compared with one that was left alone.

python tests/learn/learn_kills.py [KILLS] [--ahead]   the table: where it was killed, what was compared, how far apart
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kill_me import train
from learn_runs import make_config, make_shared_model
from safetensors.numpy import load_file

from jade.api.documents import index_documents
from jade.config import dump_config
from jade.corpus.world import make_world, write_world
from jade.learn.monitor.journal import read_journal

ITERATIONS = 5
AHEAD = {"ahead": True, "checkpoint_every": 5, "dev_every": 3}
"""Settings under which the rollouts of three of the five iterations are made ahead."""
PATIENCE_SECONDS = 300
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["jade.learn.open", "transformers.models.llama.modeling_llama"])
"""Processes that need not import everything again."""


def write_run(model: Path, folder: Path, learn: Mapping[str, Any] | None = None) -> Path:
    """Five iterations over an indexed world, with a checkpoint after every second one and a measurement on the way,
    unless told otherwise."""
    world = folder / "world"
    write_world(make_world(50, 40, 0), world)
    index_documents([world / "pages"], folder / "index")
    settings: dict[str, Any] = {
        "retrieval": {"index": str(folder / "index"), "inline": True, "k": 1},
        "reward": {"dial": 0.4},
        "learn": {
            "questions": [str(world / "questions.train.jsonl")],
            "dev": [str(world / "questions.dev.jsonl")],
            "dev_questions": 1,
            "iterations": ITERATIONS,
            "checkpoint_every": 2,
            "dev_every": 3,
            **(learn or {}),
        },
    }
    path = folder / "run.toml"
    path.write_text(dump_config(make_config(model, settings)))
    return path


def start(config: Path, folder: Path) -> BaseProcess:
    """The run as a process of its own, from where it stands."""
    process = PROCESSES.Process(target=train, args=(config, folder))
    process.start()
    return process


def kill_when(config: Path, folder: Path, num_lines: int, delay: float) -> str:
    """Start the run, wait until its journal has so many lines and a moment longer, and kill it; says where it was."""
    process = start(config, folder)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.is_alive() and time.monotonic() < deadline and _num_lines(folder) < num_lines:
            time.sleep(0.005)
        time.sleep(delay)
    finally:
        process.kill()
        process.join()
    return describe(folder)


def describe(folder: Path) -> str:
    """What a killed run had done, and whether it was writing a checkpoint."""
    if not (folder / "metrics.jsonl").exists():
        return "before it began"
    done = sum(row["kind"] == "iteration" for row in read_journal(folder))
    places = sorted(path.name for path in (folder / "checkpoints").glob("*"))
    saved = next((name.removeprefix("step-").lstrip("0") or "0" for name in places[::-1] if name[0] == "s"), "none")
    writing = ", while one was written" if any(name.startswith(".partial") for name in places) else ""
    return f"after {done} iterations, checkpoint {saved}{writing}"


def numbers(folder: Path) -> list[dict[str, Any]]:
    """The journal without what a clock says."""
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in read_journal(folder)]


def differences(one: Path, other: Path) -> Iterator[float]:
    """How far two finished runs are apart, in every figure of their journals and in every weight and moment."""
    for left, right in zip(numbers(one), numbers(other), strict=True):
        assert left.keys() == right.keys()
        yield from (abs(left[name] - right[name]) for name in left if isinstance(left[name], (int, float)))
    for name in ("policy.safetensors", "optimiser.safetensors"):
        saved, again = (load_file(run / f"checkpoints/step-{ITERATIONS:06d}" / name) for run in (one, other))
        assert saved.keys() == again.keys()
        yield from (float(abs(saved[key] - again[key]).max()) for key in saved)


def _num_lines(folder: Path) -> int:
    journal = folder / "metrics.jsonl"
    return journal.read_text().count("\n") if journal.exists() else 0


def print_table(config: Path, folder: Path, num_kills: int) -> None:
    start(config, folder / "through").join()
    print("| killed with SIGKILL | iterations compared | figures compared | largest difference |\n|---|---|---|---|")
    chance = random.Random(0)
    for kill in range(num_kills):
        killed = folder / f"killed-{kill}"
        where = kill_when(config, killed, chance.randrange(ITERATIONS + 2), chance.uniform(0.0, 0.6))
        start(config, killed).join()
        apart = list(differences(folder / "through", killed))
        print(f"| {where} | {ITERATIONS} | {len(apart):,} | {max(apart):g} |", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        given = [word for word in sys.argv[1:] if word != "--ahead"]
        settings = AHEAD if "--ahead" in sys.argv else None
        written = write_run(make_shared_model(Path(place) / "model"), Path(place), settings)
        print_table(written, Path(place), int(given[0]) if given else 8)
