"""What several processes cost and bring on this machine: an update shared by 1, 2 and 4 of them, rollouts through Ray
actors against rollouts in this process, the time lost to one actor that is killed, and whole runs of 1, 2 and 4
learners by torchrun and by Ray beside the same run in this process.

    python benchmarks/cluster.py [--calls 64] [--questions 24] [--only updates|rollouts|runs]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from jade.api.documents import index_documents
from jade.config import BackboneConfig, Config, LearnConfig, SamplingConfig
from jade.corpus.world import make_world, write_world
from jade.engine.rollout import Job, rollout
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.open import open_run
from jade.learn.policy import load_policy
from jade.learn.questions import read_question_file
from jade.learn.rollouts.sampler import publish
from jade.learn.tiny import TinySize, make_tiny_model
from jade.learn.transitions import Experience
from jade.team.crew import open_crew
from jade.types import Reward, Trace, Transition

SAMPLING = SamplingConfig(temperature=1.0)
PATIENCE_SECONDS = 300
Figures = dict[str, float]


def make_experience(num_calls: int) -> Experience:
    """Calls of the lengths that a rollout has, with made-up tokens."""
    draw = np.random.default_rng(0)
    transitions = []
    for number in range(num_calls):
        prompt, action = int(draw.integers(150, 500)), int(draw.integers(6, 40))
        ids = tuple(draw.integers(3, 250, prompt + action).tolist())
        reward = Reward(outcome=float(draw.random()))
        logprobs = (0.0,) * action
        role = ("P", "QR", "DS", "AG")[number % 4]
        transitions.append(
            Transition(f"t{number // 4}", str(number), role, ids[:prompt], ids[prompt:], logprobs, reward)
        )
    return Experience(tuple(transitions), {})


def update(model: Path, num_calls: int) -> Figures:
    """The second of two updates: the first warms up."""
    torch.set_num_threads(1)
    cfg = LearnConfig.model_validate({"policy": {"tokens_per_batch": 4096}, "credit": {"rule": "shared"}})
    learner = Learner(load_policy(BackboneConfig(model=str(model), device="cpu"), cfg.policy), cfg)
    experience = as_sampled(learner, make_experience(num_calls))
    learner.update(experience, iteration=0, seed=0)
    return learner.update(experience, iteration=1, seed=1)


def as_sampled(learner: Learner, experience: Experience) -> Experience:
    """The same calls with the log-probs that this policy gives them."""
    pairs = zip(experience.transitions, learner.look_back(experience).logps, strict=True)
    return Experience(tuple(replace(call, logprobs=tuple(logp.tolist())) for call, logp in pairs), {})


def take_part(rank: int, num_ranks: int, model: Path, num_calls: int, group: str, results: Queue[Figures]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{group}", rank=rank, world_size=num_ranks)
    figures = update(model, num_calls)
    if rank == 0:
        results.put(figures)
    dist.destroy_process_group()


def shared_by(num_ranks: int, model: Path, num_calls: int) -> Figures:
    """One update, shared by so many processes."""
    context = multiprocessing.get_context("spawn")
    results: Queue[Figures] = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (num_ranks, model, num_calls, f"{folder}/group", results)
        group = [context.Process(target=take_part, args=(rank, *arguments)) for rank in range(num_ranks)]
        for process in group:
            process.start()
        figures = results.get(timeout=PATIENCE_SECONDS)
        for process in group:
            process.join()
    return figures


def measure_updates(model: Path, num_calls: int) -> Iterator[dict[str, Any]]:
    names = ("policy", "value", "entropy", "gradient_norm")
    for num_ranks in (1, 2, 4):
        figures = shared_by(num_ranks, model, num_calls)
        seconds = {name: round(figures[f"seconds_{name}"], 2) for name in ("look_back", "update")}
        yield {"processes": num_ranks, **{name: figures[name] for name in names}, **seconds}


def make_config(folder: Path, model: Path) -> Config:
    """A world of its own, and a model that samples until it is cut off."""
    write_world(make_world(60, 120, 0), folder / "world")
    index_documents([folder / "world" / "pages"], folder / "index")
    return Config.model_validate(
        {
            "backbone": {"model": str(model), "device": "cpu", "threads": 1, "max_prompt_tokens": 1024},
            "retrieval": {"index": str(folder / "index"), "threads": 1, "k": 3},
            "budget": {"rounds": 2, "calls": 4},
            "learn": {"questions": [str(folder / "world" / "questions.train.jsonl")]},
        }
    )


def timed(work: Callable[[], Sequence[Trace]]) -> tuple[float, Sequence[Trace]]:
    started = time.perf_counter()
    traces = work()
    return time.perf_counter() - started, traces


def measure_rollouts(config: Config, num_questions: int) -> Iterator[dict[str, Any]]:
    """The same questions here, by one actor, by two, and by two of which one is killed on the way."""
    import ray

    from jade.cluster.ray_actors import RayTroupe, start_actors
    from jade.cluster.ray_room import connected

    questions = read_question_file(config.learn.questions[0])[:num_questions]
    jobs = [Job(question, seed) for seed, question in enumerate(questions)]
    policy = load_policy(config.backbone, config.learn.policy)
    yield {"where": "in this process", **asyncio.run(_here(config, policy, jobs))}
    with connected(config, 2, None) as room:
        started = time.perf_counter()
        actors = start_actors(room, config)
        yield {"where": "start of 2 actors", "seconds": round(time.perf_counter() - started, 2)}
        for number in (1, 2):
            troupe = RayTroupe(SAMPLING, actors[:number])
            published = time.perf_counter()
            asyncio.run(troupe.follow(policy, number))
            published = time.perf_counter() - published
            work = _through(troupe, jobs)
            work()
            seconds, _ = timed(work)
            yield {"where": f"{number} actors", **_row(seconds, len(jobs)), "publish": round(published, 3)}
        killer = _Killer(ray.get(actors[0].process_id.remote()), delay=0.5 * seconds)
        lost, traces = timed(lambda: killer.during(work))
        assert not any(trace.error for trace in traces), "every question came back"
        yield {"where": "2 actors, one killed half way", **_row(lost, len(jobs)), "lost": round(lost - seconds, 2)}


RUNS = (("torchrun", 1), ("torchrun", 2), ("torchrun", 4), ("ray", 1), ("ray", 2), ("ray", 4))
SHOWN = ("reward", "policy", "value", "gradient_norm")


def measure_runs(config: Config, folder: Path) -> Iterator[dict[str, Any]]:
    """The last figures of each run, and the most by which one of any iteration differs from this process's."""
    from jade.cluster.launch import train_on
    from jade.cluster.member import Task

    started = time.perf_counter()
    asyncio.run(_train_here(config, folder / "local"))
    alone = figures_in(folder / "local")
    yield {"backend": "local", "learners": 1, **_last(alone), "seconds": round(time.perf_counter() - started, 1)}
    for backend, learners in RUNS:
        out, started = folder / f"{backend}-{learners}", time.perf_counter()
        train_on(backend, Task(config, out), Silent(), learners)
        seconds, found = time.perf_counter() - started, figures_in(out)
        differs = max(
            abs(row[name] - same[name]) / max(abs(same[name]), 1e-3)
            for row, same in zip(found, alone, strict=True)
            for name in SHOWN
        )
        yield {
            "backend": backend,
            "learners": learners,
            **_last(found),
            "differs": differs,
            "seconds": round(seconds, 1),
        }


async def _train_here(config: Config, folder: Path) -> None:
    async with open_run(config, folder, Silent()) as run:
        await run.train()


def figures_in(folder: Path) -> list[dict[str, Any]]:
    return list(read_journal(folder, "iteration"))


def _last(rows: Sequence[dict[str, Any]]) -> Figures:
    return {name: rows[-1][name] for name in SHOWN}


def as_short_run(config: Config, iterations: int) -> Config:
    """A few questions an iteration, every batch the same in every run."""
    learn = {
        "iterations": iterations,
        "questions_per_iteration": 8,
        "ppo": {"learning_rate": 1e-4, "minibatches": 2},
        "guard": {"max_kl": 50.0, "max_entropy": 20.0},
    }
    settings = config.model_dump(mode="json")
    settings["backbone"] |= {"inline": True}
    settings["retrieval"] |= {"inline": True}
    settings["learn"] |= learn
    return Config.model_validate(settings)


class _Killer:
    """Kills a process some time after work has begun."""

    def __init__(self, process: int, delay: float) -> None:
        self._process = process
        self._delay = delay

    def during(self, work: Callable[[], Sequence[Trace]]) -> Sequence[Trace]:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(self._process, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, self._delay)
        return work()


def _through(troupe: Any, jobs: Sequence[Job]) -> Callable[[], Sequence[Trace]]:
    def work() -> Sequence[Trace]:
        traces: Sequence[Trace] = asyncio.run(troupe.roll_out(jobs, concurrency=64))
        return traces

    return work


async def _here(config: Config, policy: Any, jobs: Sequence[Job]) -> dict[str, Any]:
    async with open_crew(config) as crew:
        crew = replace(crew, sampling=SAMPLING)
        await publish(policy, crew, 0)
        await rollout(jobs, crew)
        started = time.perf_counter()
        await rollout(jobs, crew)
        return _row(time.perf_counter() - started, len(jobs))


def _row(seconds: float, num: int) -> dict[str, Any]:
    return {"seconds": round(seconds, 2), "rollouts_per_second": round(num / seconds, 2)}


def show(rows: Iterable[dict[str, Any]]) -> None:
    """One line of JSON each, as soon as it is there."""
    for row in rows:
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=64)
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--width", type=int, default=256, help="of the model, which is made for this")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=3, help="of a whole run")
    parser.add_argument("--only", choices=("updates", "rollouts", "runs"))
    options = parser.parse_args()
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0]}), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = TinySize(width=options.width, layers=options.layers, heads=8, key_value_heads=4)
        model = make_tiny_model(folder / "model", ["Who wrote the book? <answer>Ada</answer>"] * 20, size)
        if options.only in (None, "updates"):
            show(measure_updates(model, options.calls))
        config = make_config(folder, model)
        if options.only in (None, "rollouts"):
            show(measure_rollouts(config, options.questions))
        if options.only in (None, "runs"):
            show(measure_runs(as_short_run(config, options.iterations), folder))


if __name__ == "__main__":
    main()
