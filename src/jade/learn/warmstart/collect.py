"""From question files to examples: lessons, without what leaks, worked by the oracle team over the real index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config
from jade.engine.effort import draw_prices
from jade.engine.record import read_traces
from jade.engine.rollout import work_through
from jade.engine.seeds import derive_seed
from jade.errors import ConfigError
from jade.learn.check import check_roles, check_team
from jade.learn.questions import read_question_files
from jade.learn.warmstart.best import best_examples
from jade.learn.warmstart.examples import Example, distinct
from jade.learn.warmstart.gold import Lesson, lesson_of
from jade.learn.warmstart.leaks import LeakReport, drop_leaks
from jade.learn.warmstart.oracle import Plans, teach
from jade.learn.warmstart.order import Reordered
from jade.retrieval.base import Retriever
from jade.team.crew import Cast, Crew
from jade.team.team import Team
from jade.types import Effort, Question, Trace

CONCURRENCY = 256


@dataclass(frozen=True, slots=True)
class Course:
    """What a warm start teaches, checked before any work."""

    team: Team
    lessons: list[Lesson]
    own_traces: list[Trace]
    leaks: LeakReport


def plan_course(config: Config) -> Course:
    """Read everything that is to be taught; every complaint names the field."""
    cfg = config.warmstart
    team = check_team(config, cfg.roles, "warmstart.roles")
    check_roles(team, cfg.role_examples, "warmstart.role_examples")
    if not cfg.questions and not cfg.best_traces:
        raise ConfigError("warmstart.questions is empty: name question files with gold data, or give best_traces")
    missing = [path for path in cfg.best_traces if not path.is_file()]
    if missing:
        raise ConfigError(f"warmstart.best_traces: {missing[0]} does not exist")
    files = read_question_files("warmstart.questions", cfg.questions, cfg.per_file, cfg.part)
    held_out = [q for file in read_question_files("warmstart.held_out", cfg.held_out) for q in file]
    lessons, leaks = drop_leaks([lesson_of(question) for file in files for question in file], held_out)
    traces = _own_traces(config, held_out)
    if not lessons and not traces:
        if not cfg.questions:
            raise ConfigError(
                "warmstart.best_traces: these files hold no trace, or none that shares nothing with "
                "warmstart.held_out; name others"
            )
        raise ConfigError("warmstart.questions: all are left out, since they share something with warmstart.held_out")
    return Course(team, lessons, traces, leaks)


def _own_traces(config: Config, held_out: Sequence[Question]) -> list[Trace]:
    """Traces of questions that share nothing with the held-out ones."""
    traces = [trace for path in config.warmstart.best_traces for trace in read_traces(path)]
    kept, _ = drop_leaks([lesson_of(trace.question) for trace in traces], held_out)
    clean = {lesson.question.key for lesson in kept}
    return [trace for trace in traces if trace.question.key in clean]


async def collect(config: Config, course: Course, retriever: Retriever) -> list[Example]:
    """All examples of a course, for the roles that get any; the order depends on the course alone."""
    crew = Crew(course.team, Cast(ScriptedBackbone(str)), retriever, config.budget, config.sampling, config.retrieval.k)
    lessons = [
        (team, lesson, number)
        for team in _teams(course.team, config.warmstart.roles)
        for number in range(config.warmstart.passes)
        for lesson in course.lessons
    ]
    cfg = config.warmstart
    plans = Plans(cfg.plan_by == "hops", cfg.plan_by == "none", cfg.other_plans, cfg.split_gain)
    taught: list[list[Example]] = [[] for _ in lessons]

    async def work(place: int) -> None:
        team, lesson, number = lessons[place]
        taught[place] = await teach(
            lesson,
            replace(crew, team=team),
            seed=derive_seed(config.seed, "warm start", number),
            effort=_effort(config, place),
            plans=plans,
            shown=_shown(config, place, retriever),
        )

    await work_through(range(len(lessons)), work, CONCURRENCY)
    own = best_examples(course.own_traces, course.team, config.warmstart.min_outcome)
    return distinct(_of_roles([*(example for each in taught for example in each), *own], config.warmstart.roles))


def _teams(team: Team, roles: Sequence[str]) -> list[Team]:
    """The team as it works, and each role that works alone in its place, over the same lessons."""
    return [team, *(team.leave_to(code) for code in roles if team.role(code).kind == "alone")]


def _of_roles(examples: Iterable[Example], roles: Sequence[str]) -> Iterable[Example]:
    return (example for example in examples if example.prompt.role in roles)


def _shown(config: Config, place: int, retriever: Retriever) -> Retriever:
    """As found, or in another order."""
    seed = derive_seed(config.seed, "warm start order", place)
    drawn = np.random.default_rng(seed).random() < config.warmstart.shuffled
    return Reordered(retriever, seed) if drawn else retriever


def _effort(config: Config, place: int) -> Effort | None:
    """With a dial, prices stand in the planner's prompt; a warm start shows it some of each size."""
    return draw_prices(config.reward.dial, derive_seed(config.seed, "warm start effort", place))
