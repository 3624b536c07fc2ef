"""What the engine costs beside the model: microseconds a call, next to the same workflow written in LangGraph.

2,000 scripted questions of 11 model calls and 2 searches each (plan, split, twice plan-rewrite-search-select-answer,
summarise) run at concurrency 256. The model is a function that gives the event loop one turn. Both sides put the same
prompts to it and read its output with the same parsers; the floor is those calls alone, without any engine. What a
side takes above its own floor is its overhead. The LangGraph side runs in an environment of its own, made here.

    python benchmarks/engine.py [--questions 2000] [--concurrency 256] [--repeats 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jade.config import TeamConfig
from jade.team.crew import Cast, Crew
from jade.team.team import Team, build_team
from jade.types import Generation, Known, Observation, Passage, Prompt, Question, Sampling

HERE = Path(__file__).resolve().parent
VENV = HERE.parent / ".venvs" / "langgraph"
TEXT = "The school in the river town was founded by a person of that name in the year of the flood. " * 5
PASSAGES = tuple(Passage(str(n), f"Page {n}", TEXT, f"page{n}.md:0") for n in range(5))
LINES = {
    "QDS": "<q1>Who founded the school?</q1><q2>Where was #1 born?</q2>",
    "QR": "<query>founder of the school</query>",
    "DS": "<id>Document0,Document2</id>",
    "AG": "<answer>Jane Austen</answer>",
    "AS": "<answer>Hampshire</answer>",
}
SPLIT, SOLVE = "<workflow>QDS</workflow>", "<workflow>QR,R,DS,AG</workflow>"
CALLS_PER_QUESTION = 11


class Model:
    """The scripted model of both sides."""

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(0)
        if prompt.role != "P":
            return Generation(LINES[prompt.role])
        return Generation(SPLIT if "Question: Where is" in prompt.user else SOLVE)

    async def close(self) -> None:
        return None


class Shelf:
    """The scripted search of both sides."""

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        await asyncio.sleep(0)
        return [list(PASSAGES[:k]) for _ in queries]

    async def close(self) -> None:
        return None


def questions(number: int) -> list[Question]:
    return [Question(f"q{n}", f"Where is the birthplace of the founder of school {n}?") for n in range(number)]


Ask = Callable[[Question], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Processor and wall-clock microseconds a call. The first is hardly disturbed by what else the machine does."""

    processor: float
    wall: float


def measure(ask: Ask, asked: Sequence[Question], concurrency: int) -> Timing:
    """Ask everything, `concurrency` at a time; every answer must be the right one."""

    async def everything() -> None:
        waiting = iter(asked)

        async def worker() -> None:
            for question in waiting:
                assert await ask(question) == "Hampshire"

        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(worker())

    processor, wall = time.process_time(), time.perf_counter()
    asyncio.run(everything())
    calls = len(asked) * CALLS_PER_QUESTION
    return Timing((time.process_time() - processor) * 1e6 / calls, (time.perf_counter() - wall) * 1e6 / calls)


def floor(team: Team) -> Ask:
    """The calls of one question, one after the other: render, generate, parse. No engine."""
    model, shelf, sampling = Model(), Shelf(), Sampling()

    async def call(code: str, seen: Observation) -> None:
        generation = await model.generate(team.render(code, seen), sampling)
        team.role(code).parse(generation.text, seen)

    async def ask(question: Question) -> str:
        legal = team.legal(child=False).codes
        await call("P", Observation(question.text, legal=legal))
        await call("QDS", Observation(question.text))
        known: tuple[Known, ...] = ()
        for text in ("Who founded the school?", "Where was Jane Austen born?"):
            await call("P", Observation(text, known=known, legal=legal))
            await call("QR", Observation(text, known=known))
            (found,) = await shelf.search([text], 5)
            await call("DS", Observation(text, passages=tuple(found)))
            await call("AG", Observation(text, passages=(found[0], found[2])))
            known = (*known, Known(text, "Jane Austen"))
        await call("AS", Observation(question.text, known=known))
        return "Hampshire"

    return ask


def jade(team: Team) -> Ask:
    from jade.engine.solve import solve

    crew = Crew(team, Cast(Model()), Shelf())

    async def ask(question: Question) -> str:
        trace = await solve(question, crew)
        assert trace.usage.calls == CALLS_PER_QUESTION
        return trace.answer

    return ask


def langgraph(team: Team) -> Ask:
    from engine_langgraph import build_graph

    return build_graph(team, Model(), Shelf())


SIDES: dict[str, Callable[[Team], Ask]] = {"jade": jade, "langgraph": langgraph}


def run_side(name: str, number: int, concurrency: int) -> dict[str, float]:
    """One side and its floor, once each after a short warm-up."""
    team = build_team(TeamConfig())
    asked, asks = questions(number), {"total": SIDES[name](team), "floor": floor(team)}
    for ask in asks.values():
        measure(ask, asked[:200], concurrency)
    total, bare = (measure(ask, asked, concurrency) for ask in asks.values())
    return {
        "calls_per_second": round(1e6 / total.wall),
        "total_us": round(total.processor, 1),
        "floor_us": round(bare.processor, 1),
        "overhead_us": round(total.processor - bare.processor, 1),
    }


def langgraph_python() -> Path:
    """The interpreter of LangGraph's own environment, made when it is not there."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    if subprocess.run([python, "-c", "import langgraph"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "langgraph"], check=True)
    return python


def in_own_process(python: Path | str, name: str, options: argparse.Namespace) -> dict[str, float]:
    arguments = [f"--side={name}", f"--questions={options.questions}", f"--concurrency={options.concurrency}"]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src"), "LANGSMITH_TRACING": "false"}
    command = [str(python), str(HERE / "engine.py"), *arguments]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def best_of(pythons: dict[str, Path], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Each side's best run. The sides take turns, so that a busy machine disturbs them alike."""
    runs = [
        {name: in_own_process(python, name, options) for name, python in pythons.items()}
        for _ in range(options.repeats)
    ]
    return {name: min((run[name] for run in runs), key=lambda figures: figures["total_us"]) for name in pythons}


def version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options.side, options.questions, options.concurrency)))
        return
    machine: dict[str, object] = {"python": platform.python_version(), "cores": os.cpu_count(), "load": load()}
    pythons = {"jade": Path(sys.executable)}
    try:
        pythons["langgraph"] = langgraph_python()
        machine["langgraph"] = version(pythons["langgraph"], "langgraph")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"LangGraph could not be had ({error}); measuring jade alone", file=sys.stderr)
    sides = best_of(pythons, options)
    figures: dict[str, object] = {**sides, "machine": machine | {"load_after": load()}}
    if "langgraph" in sides:
        figures["overhead_ratio"] = round(sides["langgraph"]["overhead_us"] / sides["jade"]["overhead_us"], 1)
    print(json.dumps(figures))


def load() -> float:
    """Processes that wanted a core over the last minute."""
    return round(os.getloadavg()[0], 2)


if __name__ == "__main__":
    main()
