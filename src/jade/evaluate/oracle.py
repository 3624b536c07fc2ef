"""A team that plans, selects and reads perfectly over the real retriever: the ceiling of that retriever.

Gold sub-questions are asked as they are written; where a benchmark names only the evidence pages, each page is asked
for by its title. A hop is answered with its gold answer if, and only if, a passage that was shown holds it; otherwise
the answer is "unknown" and what depends on it fails. Where that way does not lead to the answer, the question is asked
in one go: a perfect planner takes the way that works. Everything runs through the ordinary engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jade.backbone.scripted import ScriptedBackbone
from jade.corpus.questions import supporting_titles
from jade.engine.solve import fill_references, solve
from jade.reward.metrics import contains, exact_match, is_yes_no, normalise
from jade.team.crew import Cast, Crew
from jade.team.render import quote
from jade.types import Prompt, Question, Role, Trace

UNKNOWN = "unknown"
FOUND = "found"
_DOCUMENT = re.compile(r"^Document(\d+)(?: \((.*?)\))?: (.*)$", re.MULTILINE)
_REFERENCE = re.compile(r"#[0-9]")


@dataclass(frozen=True, slots=True)
class Hop:
    """One gold sub-question, or one evidence page: `answer` is None where having the page is all that is asked."""

    question: str
    answer: str | None
    titles: tuple[str, ...]


@dataclass
class GoldTeam:
    """What a perfect team says for one question, role by role."""

    question: Question
    hops: tuple[Hop, ...]
    said: dict[int, str] = field(default_factory=dict)
    """What was answered to each hop so far."""
    holds_gold: bool = False
    """Whether any passage that was read contains a gold answer."""

    def speak(self, prompt: Prompt) -> str:
        roles: Mapping[str, Callable[[str], str]] = {
            Role.PLANNER: self._plan,
            Role.SERIAL: self._split,
            Role.PARALLEL: self._split,
            Role.SELECTOR: self._select,
            Role.ANSWERER: self._read,
            Role.SUMMARISER: self._summarise,
        }
        return roles[prompt.role](prompt.user)

    def _plan(self, user: str) -> str:
        at_root = _asked(user) == quote(self.question.text)
        if not (at_root and len(self.hops) > 1):
            return "<workflow>R,DS,AG</workflow>"
        serial = any(_REFERENCE.search(hop.question) for hop in self.hops)
        return f"<workflow>{Role.SERIAL if serial else Role.PARALLEL}</workflow>"

    def _split(self, user: str) -> str:
        return "".join(f"<q{number}>{hop.question}</q{number}>" for number, hop in enumerate(self.hops, start=1))

    def _select(self, user: str) -> str:
        hop = self._hop(user)[1]
        useful = [f"Document{number}" for number, title, text in _documents(user) if _is_evidence(hop, title, text)]
        return f"<id>{','.join(useful)}</id>"

    def _read(self, user: str) -> str:
        place, hop = self._hop(user)
        read = [(title, text) for _, title, text in _documents(user)]
        self.holds_gold |= any(contains(f"{t} {text}", gold) for t, text in read for gold in self.question.answers)
        answer = (hop.answer or FOUND) if _suffices(hop, read) else UNKNOWN
        if place is not None:
            self.said[place] = answer
        return f"<answer>{answer}</answer>"

    def _summarise(self, user: str) -> str:
        complete = len(self.said) == len(self.hops) and UNKNOWN not in self.said.values()
        return f"<answer>{self.question.answers[0] if complete and self._follows() else UNKNOWN}</answer>"

    def _follows(self) -> bool:
        """Whether the gold answer can be concluded from what was read: it stands there, or the question offers it."""
        golds = self.question.answers
        by_title = any(hop.answer is None for hop in self.hops)
        return (
            not by_title or is_yes_no(golds) or self.holds_gold or any(contains(self.question.text, g) for g in golds)
        )

    def _hop(self, user: str) -> tuple[int | None, Hop]:
        """The hop a prompt is about; the question as a whole when it is about none of them."""
        asked, said = _asked(user), [self.said.get(place) for place in range(len(self.hops))]
        for place, hop in enumerate(self.hops):
            if len(self.hops) > 1 and quote(fill_references(hop.question, said)) == asked:
                return place, hop
        return None, _whole(self.question, user)


async def solve_as_oracle(question: Question, crew: Crew, seed: int) -> Trace:
    """The trace of a perfect team for one question: of the ways it could take, the first that leads to the answer."""
    free = replace(crew.team, root_plans=(), child_plans=())
    ways = dict.fromkeys((gold_hops(question), ()))  # one way where there is nothing to split
    traces = []
    for hops in ways:
        team = GoldTeam(question, hops)
        own = replace(crew, team=free, cast=Cast(ScriptedBackbone(team.speak)))
        traces.append(await solve(question, own, seed=seed))
        if exact_match(traces[-1].answer, question.answers):
            return traces[-1]
    return traces[0]


def gold_hops(question: Question) -> tuple[Hop, ...]:
    """Gold sub-questions where they are known; else the evidence pages; else nothing to split."""
    titles = supporting_titles(question)
    steps: Sequence[Mapping[str, str]] = question.metadata.get("decomposition") or ()
    if len(steps) > 1 and all(step.get("question") and step.get("answer") for step in steps):
        return tuple(_gold_hop(step, titles) for step in steps)
    return tuple(Hop(title, None, (title,)) for title in titles) if len(titles) > 1 else ()


def _gold_hop(step: Mapping[str, str], titles: tuple[str, ...]) -> Hop:
    """A gold sub-question; its evidence is its own page where that is named, else any page of the question."""
    own = (str(step["support"]),) if step.get("support") else titles
    return Hop(str(step["question"]), str(step["answer"]), own)


def _whole(question: Question, user: str) -> Hop:
    """The question asked in one go. Of several golds the one that the documents hold is the answer."""
    golds = question.answers
    texts = [f"{title} {text}" for _, title, text in _documents(user)]
    said = next((gold for gold in golds if any(contains(text, gold) for text in texts)), golds[0])
    return Hop(question.text, said, supporting_titles(question))


def _suffices(hop: Hop, read: Sequence[tuple[str, str]]) -> bool:
    """Whether what was read answers the hop: it stands there, or every page that decides it is there."""
    if hop.answer is None or is_yes_no([hop.answer]):
        return bool(read) and {normalise(title) for title in hop.titles} <= {normalise(title) for title, _ in read}
    return any(_is_evidence(hop, title, text) for title, text in read)


def _is_evidence(hop: Hop, title: str, text: str) -> bool:
    """Whether a passage holds the hop's answer; where that is yes, no or just the page, whether it is of the page."""
    if hop.answer is None or is_yes_no([hop.answer]):
        return not hop.titles or normalise(title) in {normalise(each) for each in hop.titles}
    return contains(f"{title} {text}", hop.answer)


def _asked(user: str) -> str:
    """What the last line of a prompt asks; a question may have the word in itself."""
    return user.rpartition("\n")[2].removeprefix("Question: ")


def _documents(user: str) -> list[tuple[int, str, str]]:
    return [(int(number), title, text) for number, title, text in _DOCUMENT.findall(user)]
