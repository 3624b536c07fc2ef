"""Rollouts in a process beside the learner's: the same figures, one line when it is gone, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_kills import AHEAD, PATIENCE_SECONDS, numbers, start, write_run

from jade.config import Config, load_config
from jade.engine.rollout import Job
from jade.errors import BackboneFailed, ConfigError, JadeError
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run
from jade.learn.policy import load_policy
from jade.learn.rollouts import beside as beside_module
from jade.learn.rollouts import desk
from jade.learn.rollouts.beside import Beside, all_of, deal, open_beside
from jade.learn.rollouts.desk import AT_ONCE, CANCEL, _serve
from jade.learn.rollouts.line import END_SECONDS, FIRST, PRIORITY, SECOND, Line, open_line
from jade.learn.rollouts.sampler import publish
from jade.team.crew import open_crew
from jade.types import Question, Trace

QUESTIONS = [Question(str(number), f"Who wrote book {number}?", ("Ada",)) for number in range(4)]
IN_LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in Linux's /proc")
JOBS = [Job(question, seed) for seed, question in enumerate(QUESTIONS)]


@pytest.fixture(scope="module")
def config_file(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tiny_model, tmp_path_factory.mktemp("beside"), AHEAD)


@pytest.fixture
def config(config_file: Path) -> Config:
    return load_config(config_file)


@pytest.fixture
async def beside(config: Config) -> AsyncIterator[Beside]:
    async with open_beside(config) as troupe:
        yield troupe


def rollout_processes() -> list[Any]:
    return [child for child in multiprocessing.active_children() if child.name == "jade-rollouts"]


def process_id() -> int:
    (child,) = rollout_processes()
    assert child.pid is not None
    return int(child.pid)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def wait_until(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened()


def said(traces: list[Trace]) -> list[object]:
    return [[step.generation.token_ids for step in trace.steps if step.generation] for trace in traces]


async def test_it_ends_when_it_is_no_longer_needed(config: Config) -> None:
    async with open_beside(config) as troupe:
        await troupe.lines[0].ask("ready")
        began = time.monotonic()
    assert time.monotonic() - began < END_SECONDS / 2, "it had to be killed"


@IN_LINUX
async def test_on_a_shared_gpu_the_rollouts_go_first(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PRIORITY, raising=False)
    async with open_run(config, tmp_path / "run", Silent()):
        assert f"{PRIORITY}={FIRST}" in environment_of(process_id())
        assert os.environ[PRIORITY] == SECOND


@pytest.mark.parametrize(
    ("ahead", "processes"), [(True, 0), (True, 2), (False, 2)], ids=["ahead", "ahead by two", "by two"]
)
async def test_a_run_beside_has_the_figures_of_one_in_the_same_process(
    config: Config, tmp_path: Path, ahead: bool, processes: int
) -> None:
    learn = config.learn.model_copy(update={"ahead": ahead, "processes": processes})
    config = config.model_copy(update={"learn": learn})
    async with open_run(config, tmp_path / "beside", Silent()) as run:
        assert isinstance(run.crew, Beside)
        assert len(run.crew.lines) == len(rollout_processes()) == max(1, processes)
        await run.train()
    assert not rollout_processes()
    async with open_run(config, tmp_path / "inside", Silent(), assemble=open_crew) as run:
        await run.train()
    assert any(row.get("lag") for row in read_journal(tmp_path / "beside", "iteration")) == ahead
    # Who is read together with whom shows in the last places; one process has the learner's own batches.
    assert_same_run(tmp_path / "beside", tmp_path / "inside", tolerance=1e-4 if processes else 0.0)


def assert_same_run(one: Path, other: Path, tolerance: float) -> None:
    for row, same in zip(numbers(one), numbers(other), strict=True):
        assert row.keys() == same.keys()
        for name, value in row.items():
            if isinstance(value, float):
                assert value == pytest.approx(same[name], rel=tolerance, abs=tolerance), name
            else:
                assert value == same[name], name


@given(
    samples=st.lists(st.integers(1, 4), max_size=12),
    num_hands=st.integers(1, 5),
)
def test_jobs_are_dealt_once_each_and_those_of_a_question_to_one(samples: list[int], num_hands: int) -> None:
    jobs = [Job(Question(str(name), "?"), seed) for name, count in enumerate(samples) for seed in range(count)]
    hands = deal(jobs, num_hands)
    assert len(hands) == num_hands
    assert sorted(place for hand in hands for place in hand) == list(range(len(jobs)))
    asked = [{jobs[place].question.id for place in hand} for hand in hands]
    assert sum(map(len, asked)) == len(samples)
    assert max(map(len, asked)) - min(map(len, asked)) <= 1


async def test_what_one_fails_at_is_raised_and_the_others_are_given_up() -> None:
    given_up = asyncio.Event()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise BackboneFailed("the model is gone")

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.set()
            raise

    with pytest.raises(BackboneFailed, match="the model is gone"):
        await all_of([never(), fail()])
    assert given_up.is_set()


async def test_weights_that_are_published_are_what_the_other_speaks_with(config: Config, beside: Beside) -> None:
    policy = load_policy(config.backbone, config.learn.policy, config.seed)
    await publish(policy, beside, 7)
    assert not list(beside.shelf.folder.iterdir()), "a learner that was killed would leave its memory taken"
    traces = await beside.roll_out(JOBS, concurrency=4)
    assert [trace.question for trace in traces] == QUESTIONS
    versions = {step.generation.policy_version for trace in traces for step in trace.steps if step.generation}
    assert versions == {7}
    assert said(await beside.roll_out(JOBS, concurrency=1)) == said(traces)
    for weight in policy.parameters():
        weight.data.mul_(3.0)
    await publish(policy, beside, 8)
    assert said(await beside.roll_out(JOBS, concurrency=4)) != said(traces)


async def test_traces_come_as_they_are_made_and_in_order_in_the_end(beside: Beside) -> None:
    parts: list[dict[int, Trace]] = []
    jobs = JOBS * (2 * AT_ONCE // len(JOBS) + 1)
    await beside.lines[0].ask("roll_out", tuple(jobs), beside.sampling, 4, on_part=parts.append)
    assert [len(part) for part in parts] == [AT_ONCE, AT_ONCE, len(jobs) - 2 * AT_ONCE]
    assert sorted(position for part in parts for position in part) == list(range(len(jobs)))
    traces = await beside.roll_out(jobs, concurrency=4)
    assert [trace.question for trace in traces] == [job.question for job in jobs]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_idle(pid: int) -> bool:
    before = processor_seconds(pid)
    time.sleep(0.5)
    return processor_seconds(pid) - before < 0.1


@IN_LINUX
async def test_what_is_given_up_is_given_up_there_too_and_the_next_is_worked(beside: Beside) -> None:
    given_up = asyncio.create_task(beside.roll_out(JOBS * 2000, concurrency=4))
    await asyncio.sleep(0.5)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert any(is_idle(process_id()) for _ in range(10))
    assert len(await asyncio.wait_for(beside.roll_out(JOBS, concurrency=4), PATIENCE_SECONDS)) == len(JOBS)


async def test_a_process_that_is_killed_ends_the_rollouts_with_one_line(beside: Beside) -> None:
    working = asyncio.create_task(beside.roll_out(JOBS * 50, concurrency=4))
    await asyncio.sleep(0.1)
    os.kill(process_id(), signal.SIGKILL)
    with pytest.raises(BackboneFailed, match=r"^the process that makes the rollouts ended \(code -9\); .*--resume$"):
        await working
    with pytest.raises(BackboneFailed, match="code -9"):
        await beside.roll_out(JOBS, concurrency=4)


async def test_what_cannot_be_opened_there_is_said_here(config: Config, tmp_path: Path) -> None:
    retrieval = config.retrieval.model_copy(update={"index": str(tmp_path / "nowhere")})
    with pytest.raises(JadeError, match="nowhere"):
        async with open_beside(config.model_copy(update={"retrieval": retrieval})):
            pass
    roles = {"XX": config.backbone}
    with pytest.raises(ConfigError, match=r"roles\.XX"):
        async with open_beside(config.model_copy(update={"roles": roles})):
            pass


@IN_LINUX
async def test_a_ctrl_c_while_it_starts_is_the_learners_to_hear(config: Config) -> None:
    async with open_line(config) as line:
        os.kill(process_id(), signal.SIGINT)
        await asyncio.sleep(0.5)
        os.kill(process_id(), signal.SIGINT)
        await line.ask("ready")


async def test_processes_that_never_became_ready_are_ended_together(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = config.learn.model_copy(update={"processes": 3})
    hung_up: list[object] = []
    seen: list[int] = []

    class Loading:
        """Too busy to hear that nobody waits for it any more, until it has loaded."""

        async def ask(self, what: str) -> None:
            raise BackboneFailed("no memory is left")

        def hang_up(self) -> None:
            hung_up.append(self)

    @asynccontextmanager
    async def open_loading(config: Config) -> AsyncIterator[Loading]:
        try:
            yield Loading()
        finally:
            seen.append(len(hung_up))

    monkeypatch.setattr(beside_module, "open_line", open_loading)
    with pytest.raises(BackboneFailed, match="no memory is left"):
        async with open_beside(config.model_copy(update={"learn": learn})):
            pass
    assert seen == [3, 3, 3]


async def test_a_crew_that_cannot_be_closed_does_not_keep_its_process(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def open_stubborn(config: Config) -> AsyncIterator[object]:
        yield SimpleNamespace()
        raise RuntimeError("the index does not let go")

    monkeypatch.setattr(desk, "open_crew", open_stubborn)
    ours, theirs = multiprocessing.Pipe()
    ours.send(None)
    await asyncio.wait_for(_serve(config, theirs), 10)


async def test_what_is_given_up_before_it_was_begun_leaves_no_warning(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def open_late(config: Config) -> AsyncIterator[object]:
        await asyncio.sleep(0.1)  # all that was said has arrived
        yield SimpleNamespace()

    monkeypatch.setattr(desk, "open_crew", open_late)
    ours, theirs = multiprocessing.Pipe()
    for said in ((0, "ready", ()), (0, CANCEL, ()), None):
        ours.send(said)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await asyncio.wait_for(_serve(config, theirs), 10)
        gc.collect()
    assert not [warning for warning in caught if "never awaited" in str(warning.message)]


async def test_a_question_that_reaches_nobody_is_forgotten() -> None:
    ours, theirs = multiprocessing.Pipe()
    process: Any = SimpleNamespace(join=lambda seconds: None, exitcode=-9)
    line = Line(ours, process)
    theirs.close()
    with pytest.raises(BackboneFailed, match="code -9"):
        await line.ask("ready")
    assert not line._open, "its future would fail later, unheard, with a traceback"


@IN_LINUX
def test_a_learner_that_is_killed_leaves_no_process_behind(config_file: Path, tmp_path: Path) -> None:
    learner = start(config_file, tmp_path / "run")
    assert learner.pid is not None
    assert wait_until((tmp_path / "run" / "metrics.jsonl").exists)
    children = Path(f"/proc/{learner.pid}/task/{learner.pid}/children").read_text().split()
    alive = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(alive) == 1
    learner.kill()
    learner.join()
    assert wait_until(lambda: not is_alive(alive[0]))
