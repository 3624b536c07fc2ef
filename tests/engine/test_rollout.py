"""Many questions at once: a trace for every job, in order, never more in flight than allowed."""

from __future__ import annotations

import asyncio

import pytest
from engine_builders import AMPLE, ROOT_QUESTION, Erratic, ErraticLibrary, crew, jobs_for, script, timeless

from jade.engine.rollout import Job, rollout
from jade.engine.seeds import derive_seed
from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.team.crew import Crew
from jade.types import Effort, Generation, Prompt, Question, Sampling, Trace
from patience import PATIENCE_SECONDS


class Counting:
    """A backbone that counts how many questions are in its hands, and keeps the highest count."""

    def __init__(self) -> None:
        self.in_flight = self.most = 0

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        return Generation(script()(prompt))

    async def close(self) -> None:
        return None


def questions(number: int) -> list[Question]:
    return [Question(f"q{place}", f"Who wrote book {place}?") for place in range(number)]


@pytest.mark.parametrize("concurrency", [1, 7, 200])
async def test_thousands_of_questions_run_under_a_bound(concurrency: int) -> None:
    voice = Counting()
    traces = await rollout(jobs_for(questions(2000), seed=0), crew(voice), concurrency=concurrency)
    assert voice.most == concurrency
    assert [trace.question.id for trace in traces] == [f"q{place}" for place in range(2000)]
    assert all(trace.answer for trace in traces)


async def test_a_trace_comes_back_for_every_job_in_the_order_of_the_jobs() -> None:
    class Uneven(Counting):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            for _ in range(sampling.seed % 20):
                await asyncio.sleep(0)
            return await super().generate(prompt, sampling)

    heard: list[tuple[int, Trace]] = []
    jobs = [Job(question, seed) for seed, question in enumerate(questions(150))]
    traces = await rollout(
        jobs, crew(Uneven()), concurrency=16, on_trace=lambda place, trace: heard.append((place, trace))
    )
    assert [(trace.question, trace.seed) for trace in traces] == [(job.question, job.seed) for job in jobs]
    assert sorted(heard, key=lambda pair: pair[0]) == list(enumerate(traces))
    assert [place for place, _ in heard] != sorted(place for place, _ in heard)


async def test_a_question_is_worked_the_same_alone_and_among_many() -> None:
    erratic: Crew = crew(Erratic(1), library=ErraticLibrary(), **AMPLE)
    jobs = jobs_for(questions(40), seed=3)
    together = await rollout(jobs, erratic, concurrency=40)
    alone = [await solve(job.question, erratic, seed=job.seed) for job in jobs]
    assert [timeless(trace) for trace in together] == [timeless(trace) for trace in alone]


async def test_what_a_listener_raises_ends_the_rollout_and_is_raised_as_it_is() -> None:
    def refuse(place: int, trace: Trace) -> None:
        raise ConfigError(f"nothing can be done with {trace.question.id}")

    with pytest.raises(ConfigError, match=r"^nothing can be done with q\d$"):
        await rollout(jobs_for(questions(8), seed=0), crew(), concurrency=4, on_trace=refuse)


async def test_no_jobs_give_no_traces() -> None:
    assert await rollout([], crew()) == []


async def test_a_bound_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="concurrency 0: at least one"):
        await rollout(jobs_for(questions(1), seed=0), crew(), concurrency=0)


async def test_the_prices_of_a_job_are_those_of_its_trace() -> None:
    (trace,) = await rollout([Job(ROOT_QUESTION, 2, Effort(0.1, 0.0))], crew())
    assert (trace.effort, trace.seed, trace.id) == (Effort(0.1, 0.0), 2, "q@2")


async def test_cancelling_a_rollout_leaves_nothing_running() -> None:
    all_waiting = asyncio.Event()

    class Stuck(Counting):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            self.in_flight += 1
            if self.in_flight == 64:
                all_waiting.set()
            await asyncio.Event().wait()
            return Generation("")

    voice = Stuck()
    task = asyncio.create_task(rollout(jobs_for(questions(500), seed=0), crew(voice), concurrency=64))
    await asyncio.wait_for(all_waiting.wait(), timeout=PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, timeout=PATIENCE_SECONDS)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_samples_of_one_question_stand_together_and_differ_in_their_seeds() -> None:
    first, second = questions(2)
    jobs = jobs_for([first, second], seed=9, num_samples=3)
    assert [job.question for job in jobs] == [first] * 3 + [second] * 3
    assert [job.seed for job in jobs[:3]] == [job.seed for job in jobs[3:]]
    assert len({job.seed for job in jobs}) == 3
    assert [job.seed for job in jobs_for([first], seed=9)] == [9]


def test_a_seed_follows_from_its_names_and_from_nothing_else() -> None:
    assert derive_seed(0, "q", "0:1") == derive_seed(0, "q", "0:1") == 1125045670419790250
    assert len({derive_seed(0, "q", "0:1"), derive_seed(1, "q", "0:1"), derive_seed(0, "q0", ":1")}) == 3
    assert all(0 <= derive_seed(number, "\ud800") < 2**63 for number in range(100))
