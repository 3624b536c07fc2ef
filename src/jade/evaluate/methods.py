"""Every row of the published table as a team configuration.

What differs at inference is which workflows are legal; what differs in training is which roles learn. Only the
oracle, which is no model, works a question in its own way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from jade.config import ROLE_CODES, Config
from jade.engine.effort import effort_of
from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.evaluate.oracle import solve_as_oracle
from jade.team.crew import Crew
from jade.team.dialogue import SEARCHER
from jade.types import Effort, Question, Role, Trace

Solver = Callable[[Question, Crew, int], Awaitable[Trace]]
"""Works a question with a crew and a seed into a trace, and never raises."""

EXECUTORS = tuple(code for code in ROLE_CODES if code != "P")


async def _as_a_team(effort: Effort | None, question: Question, crew: Crew, seed: int) -> Trace:
    return await solve(question, crew, seed=seed, effort=effort)


def open_team(config: Config) -> Solver:
    """The team's own way of working: Algorithm 1, at the prices that the config names."""
    return partial(_as_a_team, effort_of(config.reward))


def open_oracle(config: Config) -> Solver:
    """Gold plans over the real retriever."""
    return solve_as_oracle


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table."""

    name: str
    title: str
    workflows: tuple[str, ...] = ()
    """What the planner may choose from; empty means all that is legal, or what the config says."""
    child_workflows: tuple[str, ...] = ()
    """The same for sub-questions."""
    train_roles: tuple[str, ...] = ()
    """Roles that learn when this method is trained (`learn.train_roles`)."""
    note: str = ""
    open_solver: Callable[[Config], Solver] = open_team
    needs_model: bool = True

    @property
    def needs_index(self) -> bool:
        """Whether anything is ever searched: where the planner is free, it may be."""
        modules = {code for plan in (*self.workflows, *self.child_workflows) for code in plan.split(",")}
        return not modules or not modules.isdisjoint({Role.RETRIEVAL, SEARCHER})


METHODS: Mapping[str, Method] = {
    row.name: row
    for row in (
        Method("no-retrieval", "No retrieval", ("AG",), note="answers from memory"),
        Method("vanilla-rag", "Vanilla RAG", ("R,AG",), note="searches for the question as it stands, then answers"),
        Method("rrr", "RRR", ("QR,R,AG",), train_roles=("QR",), note="rewrites the query, searches, answers"),
        Method("bgm", "BGM", ("R,DS,AG",), train_roles=("DS",), note="searches, selects documents, answers"),
        Method(
            "mmoa-rag",
            "MMOA-RAG",
            ("QR,R,DS,AG",),
            train_roles=("QR", "DS", "AG"),
            note="a fixed pipeline whose parts learn jointly",
        ),
        Method(
            "adaptive-rag",
            "Adaptive-RAG",
            ("AG", "R,AG", "QDS"),
            ("R,AG",),
            train_roles=("P",),
            note="routes among no retrieval, one round and several rounds",
        ),
        Method(
            "search-r1",
            "Search-R1",
            (SEARCHER,),
            train_roles=(SEARCHER,),
            note="one policy that searches and answers in one context",
        ),
        Method(
            "mao-arag",
            "MAO-ARAG",
            train_roles=("P",),
            note="a team that plans each question; its executors are frozen",
        ),
        Method(
            "executors-only",
            "Executors only",
            train_roles=EXECUTORS,
            note="a team that plans each question; its planner is frozen",
        ),
        Method("jade", "JADE", train_roles=ROLE_CODES, note="a team that plans each question; all learn together"),
        Method(
            "oracle",
            "Oracle",
            note="gold plans, selection and reading over the real retriever: its ceiling",
            open_solver=open_oracle,
            needs_model=False,
        ),
    )
}


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}: choose from {', '.join(METHODS)}")
    return METHODS[name]


def configure(method: Method, config: Config) -> Config:
    """The config under which a method runs: its workflows, and everything else as it was."""
    if not method.workflows:
        return config
    plans = {"workflows": method.workflows, "child_workflows": method.child_workflows}
    return config.model_copy(update={"team": config.team.model_copy(update=plans)})
