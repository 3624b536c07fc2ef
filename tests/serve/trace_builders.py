"""Traces and run folders to look at, made by the scripted team."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from serve_builders import NESTED, PARALLEL, SIMPLE, make_crew, play

from jade.engine.record import append_traces
from jade.engine.solve import solve
from jade.types import Prompt, Question, Trace

QUESTIONS = (
    Question("q1", SIMPLE, ("Fernhill",), "single"),
    Question("q2", NESTED, ("the river Lune", "Lune"), "multi"),
    Question("q3", PARALLEL, ("Brackwater",), "multi"),
    Question("q4", "Who founded Fernhill?", ("Otto Brand",), "single"),
)


def clumsy(prompt: Prompt) -> str:
    """A team that has not learned yet: it never splits, and its selector writes nonsense."""
    if prompt.role == "P":
        return "<workflow>R,DS,AG</workflow>"
    return "no idea" if prompt.role == "DS" else play(prompt)


def make_traces(
    questions: Sequence[Question] = QUESTIONS, script: Callable[[Prompt], str] = play, seed: int = 0
) -> list[Trace]:
    async def work() -> list[Trace]:
        return [await solve(question, make_crew(script), seed=seed) for question in questions]

    # In a thread of its own, because a browser's driver may be running a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def write_evaluation(folder: Path) -> Path:
    """An evaluation of two methods on two benchmarks."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"schema": 1, "config": {"reward": {"alpha": 0.3}}}))
    for dataset in ("single", "multi"):
        questions = [replace(question, dataset="") for question in QUESTIONS if question.dataset == dataset]
        append_traces(folder / dataset / "untrained" / "traces.jsonl", make_traces(questions, clumsy))
        append_traces(folder / dataset / "jade" / "traces.jsonl", make_traces(questions))
    return folder


def write_training(folder: Path) -> Path:
    """A training run: its journal and the traces sampled along the way."""
    (folder / "traces").mkdir(parents=True)
    lines = [
        {
            "kind": "iteration",
            "iteration": number,
            "reward": 0.1 + 0.05 * number,
            "outcome": 0.2 + 0.05 * number,
            "rounds": 1.0 + 0.1 * number,
            "retrievals": 1.5,
            "malformed": 0.4 / number,
            "malformed/P": 0.5 / number,
            "malformed/AG": 0.3 / number,
            "approx_kl": 0.01,
            "entropy": 1.0 / number,
            "seconds": 2.0,
            "tokens/P": 4000.0,
            "plan/QDS": number / 12,
            "plan/R,AG": 1 - number / 12,
        }
        for number in range(1, 13)
    ]
    guard = {
        "kind": "guard",
        "iteration": 7,
        "event": "kl",
        "detail": "moved 0.9 nats a token",
        "back_to": 5,
        "scale": 0.5,
    }
    mind = {"kind": "mind", "iteration": 9, "event": "silence", "detail": "DS tries little any more"}
    dev = {"kind": "dev", "iteration": 10, "reward": 0.61, "outcome": 0.7}
    rows = [*lines[:7], guard, *lines[7:9], mind, lines[9], dev, *lines[10:]]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number in (1, 11):
        append_traces(folder / "traces" / f"iteration-{number:06d}.jsonl", make_traces(seed=number))
    return folder
