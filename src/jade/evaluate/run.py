"""Run methods on benchmarks: every question in is a record out, in order, whatever happens on the way.

All cells share one pool of workers, so that the backbone stays busy across their borders; each cell writes its
questions in their own order. A run that was killed goes on where it was and ends with the same records.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jade.backbone.fingerprint import file_sha256, fingerprint_weights
from jade.backbone.scripted import ScriptedBackbone
from jade.config import BackboneConfig, Config
from jade.engine.effort import effort_of
from jade.engine.hold import locked
from jade.engine.rollout import work_through
from jade.errors import BackboneFailed, RetrievalFailed
from jade.evaluate.benchmarks import load_benchmarks
from jade.evaluate.fingerprint import fingerprint_texts, installed_versions
from jade.evaluate.indexed import check_index
from jade.evaluate.meter import Meter, metered
from jade.evaluate.methods import Method, Solver, configure, find_method
from jade.evaluate.record import Record, record_of
from jade.evaluate.store import Cell, CellFiles, Timing, open_run
from jade.evaluate.variants import with_variant
from jade.retrieval.base import Retriever
from jade.retrieval.fingerprint import fingerprint_index
from jade.team.crew import Cast, Crew, open_cast, open_crew
from jade.team.team import build_team
from jade.types import Passage, Question, Trace

COMPARED = ("seed", "team", "sampling", "budget", "backbone", "roles", "eval")
PACE = ("threads", "max_batch", "timeout_seconds", "retries", "concurrency", "api_key_env", "inline", "fuse")
"""Settings that change how fast a question is answered, not how."""
KNOWN_BY_WEIGHTS = ("adapter", "only_priced")
"""Settings of a backbone that are not compared, since `weights` says more: what an adapter holds and when it speaks,
wherever it happens to be installed."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to evaluate."""

    benchmarks: tuple[str, ...]
    methods: tuple[str, ...]
    out: Path
    data: str = ""
    split: str = "test"
    limit: int | None = None
    variants: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """How a cell stands."""

    done: int = 0
    total: int = 0
    failed: int = 0
    f1: float = 0.0
    """Sum over the questions done."""

    @property
    def mean_f1(self) -> float:
        return self.f1 / self.done if self.done else 0.0

    def with_record(self, record: Record) -> Tally:
        failed = self.failed + (record.error is not None)
        return replace(self, done=self.done + 1, failed=failed, f1=self.f1 + record.scores["f1"])


@dataclass(frozen=True, slots=True)
class Session:
    """What one start of a run did."""

    tallies: Mapping[Cell, Tally]
    questions: int
    calls: int
    wall_seconds: float
    busy_seconds: float


Listener = Callable[[Cell, Tally], None]
OpenMeans = Callable[[Config, Sequence[Method]], AbstractAsyncContextManager[Crew]]


def hear_nothing(cell: Cell, tally: Tally) -> None:
    """The listener that does not listen."""


@asynccontextmanager
async def open_means(config: Config, methods: Sequence[Method]) -> AsyncIterator[Crew]:
    """What the methods work with: a model and an index, each only where one of them needs it."""
    needs_model, needs_index = any(m.needs_model for m in methods), any(m.needs_index for m in methods)
    if needs_model and needs_index:
        async with open_crew(config) as crew:
            yield crew
        return
    async with AsyncExitStack() as stack:
        retriever: Retriever = NoIndex()
        if needs_index:
            from jade.retrieval.open import open_retriever

            retriever = open_retriever(config.retrieval)
        stack.push_async_callback(retriever.close)
        cast = open_cast(config) if needs_model else Cast(ScriptedBackbone(lambda prompt: ""))
        stack.push_async_callback(cast.close)
        yield Crew(build_team(config.team), cast, retriever, config.budget, config.sampling, config.retrieval.k)


class NoIndex:
    """Stands where nobody searches."""

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        raise RetrievalFailed("there is no index to search: this method was to work without one")

    async def close(self) -> None:
        return None


class CellRun:
    """One cell in hand: takes traces in any order and writes them in the order of the questions.

    Failures in a row are held back until something succeeds or the cell ends: a server that is down stops the
    run instead of filling the table with zeros, and the next start asks those questions again.
    """

    def __init__(self, cell: Cell, files: CellFiles, questions: Sequence[Question], give_up_after: int) -> None:
        self.cell = cell
        self.questions = questions
        self._files = files
        self._give_up_after = give_up_after
        self._waiting: dict[int, tuple[Trace, Timing]] = {}
        self._held: list[tuple[Trace, Timing, Record]] = []
        self.tally = Tally(total=len(questions))
        done = files.resume(questions)  # first: what it cuts off is no session of the run
        for record in done:
            self.tally = self.tally.with_record(record)
        self.session = files.num_sessions()
        self._next = self.first = len(done)

    def take(self, position: int, trace: Trace, timing: Timing) -> None:
        self._waiting[position] = (trace, timing)
        while self._next in self._waiting:
            self._accept(*self._waiting.pop(self._next))
            self._next += 1
        if self._next == len(self.questions):
            self._release()

    def _accept(self, trace: Trace, timing: Timing) -> None:
        record = record_of(trace)
        self.tally = self.tally.with_record(record)
        self._held.append((trace, timing, record))
        if record.error is None:
            self._release()
        elif len(self._held) >= self._give_up_after:
            reason = " ".join(record.error.split())[:200]
            raise BackboneFailed(f"{self.cell}: {len(self._held)} questions in a row failed, the last with: {reason}")

    def _release(self) -> None:
        for trace, timing, record in self._held:
            self._files.append(slim(trace), timing, record)
        self._held.clear()


@dataclass(frozen=True, slots=True)
class _Job:
    run: CellRun
    position: int
    crew: Crew
    solver: Solver


async def evaluate(
    request: Request, config: Config, *, listen: Listener = hear_nothing, means: OpenMeans = open_means
) -> Session:
    """Work all cells of a request to their end."""
    methods = [find_method(name) for name in dict.fromkeys(request.methods)]
    questions = load_benchmarks(request.benchmarks, request.data, request.split, request.limit)
    cells = [Cell(name, m.name, v) for name in questions for m in methods for v in range(request.variants + 1)]
    configs = {cell: with_variant(configure(find_method(cell.method), config), cell.variant) for cell in cells}
    with locked(request.out):
        open_run(request.out, settings_of(request, config), about(request, config))
        give_up_after = config.eval.give_up_after
        runs = [CellRun(c, CellFiles(request.out, c), questions[c.benchmark], give_up_after) for c in cells]
        if all(run.first == len(run.questions) for run in runs):
            return Session({run.cell: run.tally for run in runs}, 0, 0, 0.0, 0.0)
        async with means(config, methods) as crew:
            await check_index(questions, crew.retriever, methods, config)
            session = await _work(runs, crew, configs, config, listen)
        _note_session(request.out, session)
        return session


def settings_of(request: Request, config: Config) -> dict[str, Any]:
    """What must be the same for a run to go on: whatever can change a record."""
    chosen = config.model_dump(mode="json", include=set(COMPARED))
    settings: dict[str, Any] = _without(chosen, (*PACE, *KNOWN_BY_WEIGHTS))
    settings["eval"].pop("give_up_after")
    settings["eval"].pop("check_index")
    settings["split"], settings["limit"] = request.split, request.limit
    settings["retrieval"] = {"kind": config.retrieval.kind, "k": config.retrieval.k}
    prices = effort_of(config.reward)
    settings["prices"] = asdict(prices) if prices else None
    settings["index"] = fingerprint_index(config.retrieval.index)
    backbones = {"shared": config.backbone, **config.roles}
    settings["weights"] = {code: _fingerprint(backbone) for code, backbone in backbones.items()}
    if config.team.prompts and config.team.prompts.is_dir():
        settings["prompts"] = fingerprint_texts(config.team.prompts)
    # Files alone: a module's name stands for an installed package.
    if own := {name: file_sha256(Path(name)) for name in config.team.extensions if Path(name).is_file()}:
        settings["extensions"] = own
    return settings


def _fingerprint(backbone: BackboneConfig) -> list[str]:
    """Of the weights, and of the adapter over them; and whether they speak only where prices are told."""
    parts = [backbone.model, *([str(backbone.adapter)] if backbone.adapter else [])]
    return [*map(fingerprint_weights, parts), *(["priced"] if backbone.only_priced else [])]


def about(request: Request, config: Config) -> dict[str, Any]:
    """What a reader of the run will want to know and a resumed run need not share."""
    return {"data": request.data, "config": config.model_dump(mode="json"), "versions": installed_versions()}


def slim(trace: Trace) -> Trace:
    """A trace without token ids: what was read and written is still there as text, at a tenth of the size."""

    def lean(step: Any) -> Any:
        kept = step.generation and replace(step.generation, prompt_ids=(), token_ids=(), logprobs=())
        return replace(step, generation=kept)

    return replace(trace, steps=tuple(map(lean, trace.steps)))


async def _work(
    runs: Sequence[CellRun], crew: Crew, configs: Mapping[Cell, Config], config: Config, listen: Listener
) -> Session:
    meter, started = Meter(), time.perf_counter()
    jobs = list(_jobs(runs, metered(crew, meter), configs))
    for run in runs:
        listen(run.cell, run.tally)
    await work_through(jobs, partial(_work_one, config.seed, started, listen), config.eval.concurrency)
    wall_seconds = time.perf_counter() - started
    tallies = {run.cell: run.tally for run in runs}
    return Session(tallies, len(jobs), meter.num_calls, wall_seconds, meter.busy_seconds)


def _jobs(runs: Iterable[CellRun], crew: Crew, configs: Mapping[Cell, Config]) -> Iterator[_Job]:
    for run in runs:
        config = configs[run.cell]
        own_crew = replace(crew, team=build_team(config.team))
        solver = find_method(run.cell.method).open_solver(config)
        yield from (_Job(run, position, own_crew, solver) for position in range(run.first, len(run.questions)))


async def _work_one(seed: int, started: float, listen: Listener, job: _Job) -> None:
    question, began = job.run.questions[job.position], time.perf_counter() - started
    trace = await job.solver(question, job.crew, seed)
    ended = time.perf_counter() - started
    job.run.take(job.position, trace, Timing(question.id, job.run.session, began, ended, trace.usage.seconds))
    listen(job.run.cell, job.run.tally)


def _note_session(out: Path, session: Session) -> None:
    numbers = {name: getattr(session, name) for name in ("questions", "calls", "wall_seconds", "busy_seconds")}
    with (out / "sessions.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(numbers) + "\n")


def _without(data: Any, names: Sequence[str]) -> Any:
    if not isinstance(data, dict):
        return data
    return {key: _without(value, names) for key, value in data.items() if key not in names}
