"""A team that knows the lesson: it works a question through the ordinary engine, and what it says becomes examples.

So every example's prompt is, to the letter, what the engine shows at inference, over the real retriever. A step is
taught only where the gold data settles it: an answer that the passages shown do hold, a plan, a decomposition, a
selection, the query that finds the evidence best. Elsewhere the oracle says what keeps the question going.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from jade.engine.budget import has_failed
from jade.engine.seeds import derive_seed
from jade.engine.solve import fill_references, solve
from jade.errors import RetrievalFailed
from jade.learn.warmstart.dialogue import next_move
from jade.learn.warmstart.evidence import best_query, first_evidence, is_evidence, is_of_page, spelt_in
from jade.learn.warmstart.examples import Example
from jade.learn.warmstart.gold import ONE_ROUND, Hop, Lesson
from jade.retrieval.base import Retriever
from jade.reward.outcome import price
from jade.team.crew import Cast, Crew
from jade.team.dialogue import SEARCHER
from jade.team.team import Team
from jade.team.workflow import print_workflow
from jade.types import Effort, Generation, Observation, Prompt, Role, Sampling

PLAINEST = "R,AG"
SOLVING = {PLAINEST: 4, "R,DS,AG": 3, "QR,R,AG": 1, "QR,R,DS,AG": 2}
"""How often each plan that solves in one round is taught, where it is legal: all are good, and all stay alive."""
TRIED: tuple[str, ...] = (Role.SERIAL, Role.PARALLEL, *SOLVING)
"""The plans that a warm start may show in place of the gold one: every way to search, split or not."""
UNTAUGHT = "<answer>unknown</answer>"


@dataclass(frozen=True)
class WatchedTeam(Team):
    """A team that remembers what its prompts were rendered from."""

    rendered: dict[Prompt, Observation] = field(default_factory=dict)

    def render(self, code: str, seen: Observation) -> Prompt:
        prompt = super().render(code, seen)
        self.rendered[prompt] = seen
        return prompt


def watch(team: Team) -> WatchedTeam:
    return WatchedTeam(**{each.name: getattr(team, each.name) for each in fields(team)})


@dataclass(frozen=True, slots=True)
class Plans:
    """What the planner is taught, as `warmstart.plan_by`, `other_plans` and `split_gain` say it."""

    by_hops: bool = False
    """Split every question of several hops, also one whose own words find the answer."""
    one_round: bool = False
    """Teach it to split nothing; the lesson itself still goes on by the gold plan, for the executors."""
    others: float = 0.0
    """How often it is shown another plan than the one to teach."""
    split_gain: float = 1.0
    """What a split is taken to gain in F1."""


GOLD_PLANS = Plans()


class Oracle:
    """The backbone of all roles for one lesson. `examples` is what it taught."""

    def __init__(self, lesson: Lesson, team: WatchedTeam, crew: Crew, seed: int, plans: Plans) -> None:
        self._lesson = lesson
        self._plans = plans
        self._team = team
        self._crew = crew
        self._seed = seed
        self._answers: dict[int, str] = {}
        self.examples: list[Example] = []
        self.fault: Exception | None = None

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        speak: Mapping[str, Callable[[Observation], Awaitable[str | None]]] = {
            Role.PLANNER: self._plan,
            Role.SERIAL: self._split,
            Role.PARALLEL: self._split,
            Role.REWRITER: self._rewrite,
            Role.SELECTOR: self._select,
            Role.ANSWERER: self._answer,
            Role.SUMMARISER: self._summarise,
            SEARCHER: self._search,
        }
        seen = self._team.rendered.pop(prompt)
        try:
            text = await speak[prompt.role](seen) if prompt.role in speak else None
        except Exception as error:
            self.fault = error
            raise
        if text is not None:
            said = self._varied(text, seen) if prompt.role == Role.PLANNER else text
            self.examples.append(Example(prompt, said, self._lesson.question.dataset))
        return Generation(text or self._filler(prompt.role, seen))

    async def close(self) -> None:
        return None

    async def _plan(self, seen: Observation) -> str | None:
        split = self._lesson.kind
        may_split = self._is_root(seen) and split in seen.legal and self._may_pay(seen)
        if may_split and not await self._is_found_at_once(seen):
            return print_workflow(split)
        weights = {plan: weight for plan, weight in SOLVING.items() if plan in seen.legal}
        if not weights:
            return None
        draw = np.random.default_rng(derive_seed(self._seed, self._lesson.question.id, seen.question))
        share = np.array(list(weights.values())) / sum(weights.values())
        return print_workflow(str(draw.choice(list(weights), p=share)))

    def _may_pay(self, seen: Observation) -> bool:
        """Whether the question is one to split; not where that costs more than a split is said to gain."""
        hops, told = max(2, len(self._lesson.hops)), seen.effort or Effort(0.0, 0.0)
        more = price(told, 1 + hops, hops) - price(told, 1, 1)
        return self._lesson.kind != ONE_ROUND and more < self._plans.split_gain

    def _varied(self, gold: str, seen: Observation) -> str:
        """The gold plan or, as often as asked for, another one; the lesson itself goes on by the gold plan."""
        taught = print_workflow(PLAINEST) if self._plans.one_round and PLAINEST in seen.legal else gold
        others = [text for plan in TRIED if plan in seen.legal and (text := print_workflow(plan)) != taught]
        draw = np.random.default_rng(derive_seed(self._seed, self._lesson.question.id, seen.question, "other"))
        return str(draw.choice(others)) if others and draw.random() < self._plans.others else taught

    async def _is_found_at_once(self, seen: Observation) -> bool:
        """Where gold data has a type but no hops, a question whose own words find the answer is best left whole."""
        if self._lesson.hops or self._plans.by_hops:
            return False
        (passages,) = await self._crew.retriever.search([seen.question], self._crew.k)
        return first_evidence(self._hop(seen), passages) < len(passages)

    async def _split(self, seen: Observation) -> str | None:
        hops = self._lesson.hops
        if not (self._is_root(seen) and hops):
            return None
        return "".join(f"<q{number}>{hop.question}</q{number}>" for number, hop in enumerate(hops, start=1))

    async def _rewrite(self, seen: Observation) -> str | None:
        query = await best_query(seen.question, self._hop(seen), self._crew)
        return f"<query>{query}</query>" if query else None

    async def _select(self, seen: Observation) -> str | None:
        """Taught where there is something to keep: who learns to keep nothing loses more than it saves. Who reads a
        question of several hops as a whole needs the pages of all of them, not only the one that holds the answer."""
        hop = self._hop(seen)
        whole = self._is_root(seen) and self._lesson.kind != ONE_ROUND
        useful = [
            f"Document{place}"
            for place, passage in enumerate(seen.passages)
            if (is_of_page(hop, passage) if whole else is_evidence(hop, passage))
        ]
        return f"<id>{','.join(useful)}</id>" if useful else None

    async def _answer(self, seen: Observation) -> str | None:
        """Taught where a passage holds it. The first spelling that a passage has is the one to say."""
        hop = self._hop(seen)
        place = self._place(seen)
        said = hop.answer
        if place is None and (spelt := spelt_in(self._lesson.question.answers, seen.passages)):
            said = spelt
        if place is not None:
            self._answers[place] = said
        held = any(is_evidence(replace(hop, answer=said, aliases=()), passage) for passage in seen.passages)
        return f"<answer>{said}</answer>" if held else None

    async def _summarise(self, seen: Observation) -> str | None:
        complete = len(self._answers) == len(self._lesson.hops) > 0
        return f"<answer>{self._lesson.question.answers[0]}</answer>" if complete else None

    async def _search(self, seen: Observation) -> str | None:
        return await next_move(self._lesson, seen, self._crew)

    def _filler(self, role: str, seen: Observation) -> str:
        """What is said where nothing is taught. A hop gets its answer, so that the next one can be asked."""
        if role == Role.ANSWERER:
            return f"<answer>{self._hop(seen).answer}</answer>"
        if role == Role.REWRITER:
            return f"<query>{seen.question}</query>"
        return UNTAUGHT

    def _is_root(self, seen: Observation) -> bool:
        return seen.question == self._lesson.question.text

    def _place(self, seen: Observation) -> int | None:
        """Which hop is being asked, with the answers so far filled in; None for the question itself."""
        said = [self._answers.get(place) for place in range(len(self._lesson.hops))]
        asked = _one_line(seen.question)
        for place, hop in enumerate(self._lesson.hops):
            if _one_line(fill_references(hop.question, said)) == asked and not self._is_root(seen):
                return place
        return None

    def _hop(self, seen: Observation) -> Hop:
        place = self._place(seen)
        question = self._lesson.question
        if place is not None:
            return self._lesson.hops[place]
        first, *others = question.answers
        return Hop(question.text, first, self._lesson.titles, tuple(others))


async def teach(
    lesson: Lesson,
    crew: Crew,
    *,
    seed: int,
    effort: Effort | None = None,
    plans: Plans = GOLD_PLANS,
    shown: Retriever | None = None,
) -> list[Example]:
    """Work one lesson through the engine; gives what it teaches, in the order of the steps. What is found comes from
    `shown` where that is given; which query finds best is still judged by the crew's own retriever.

    A team's mishap is data, an oracle's is not, nor is a search that failed: a course that loses lessons must not look
    like a small one.
    """
    team = watch(crew.team)
    oracle = Oracle(lesson, team, crew, seed, plans)
    taught = replace(crew, team=team, cast=Cast(oracle), retriever=shown or crew.retriever)
    trace = await solve(lesson.question, taught, seed=seed, effort=effort)
    if oracle.fault is not None:
        raise oracle.fault
    lost = next((step for step in trace.steps if step.role == Role.RETRIEVAL and has_failed(step)), None)
    if lost is not None:
        raise RetrievalFailed(f"a search of the warm start failed ({lost.error})")
    return oracle.examples


def _one_line(text: str) -> str:
    return " ".join(text.split())
