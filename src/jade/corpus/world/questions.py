"""Ask about the country: a fair mix of forms for each split, each split about its own part of the country.

Within a world no two questions have the same words, and no two ask the same thing. No question contains the answer
to one of its sub-questions, but where it names a value to hold them against ("how many lie on the river X?").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from jade.corpus.world.dice import Dice
from jade.corpus.world.doubts import draw_claim, draw_order, draw_same
from jade.corpus.world.forms import Draft
from jade.corpus.world.model import SPLITS, Lore, Split
from jade.corpus.world.parallel import draw_comparison, draw_count_beyond, draw_count_same
from jade.corpus.world.serial import draw_chain
from jade.errors import ConfigError
from jade.types import Question

Draw = Callable[[Lore, Dice], Draft | None]

MIX: dict[str, tuple[int, dict[str, tuple[int, Draw]]]] = {
    "single": (25, {"1 hop": (1, partial(draw_chain, hops=1))}),
    "serial": (
        40,
        {
            "2 hops": (50, partial(draw_chain, hops=2)),
            "3 hops": (30, partial(draw_chain, hops=3)),
            "4 hops": (20, partial(draw_chain, hops=4)),
        },
    ),
    "parallel": (
        20,
        {"comparison": (60, draw_comparison), "count": (20, draw_count_same), "threshold": (20, draw_count_beyond)},
    ),
    "yesno": (15, {"same": (50, draw_same), "order": (30, draw_order), "claim": (20, draw_claim)}),
}
"""Kind -> its share in a hundred, and the draws it consists of with their shares."""

PATIENCE = 3000
"""Draws in a row that may fail before a form is held to be exhausted."""


@dataclass(frozen=True, slots=True)
class Shortage:
    split: Split
    kind: str
    made: int
    wanted: int


def ask_questions(lores: Mapping[Split, Lore], questions: int, seed: int) -> dict[Split, tuple[Question, ...]]:
    """`questions` in all: a tenth each for dev and test, the rest for train."""
    held_out = questions // 10
    sizes = dict(zip(SPLITS, (questions - 2 * held_out, held_out, held_out), strict=True))
    asked: dict[Split, tuple[Question, ...]] = {}
    shortages: list[Shortage] = []
    for split, size in sizes.items():
        drafts = _draw_split(split, lores[split], size, Dice(seed, "questions", split), shortages)
        asked[split] = tuple(_question(draft, split, number) for number, draft in enumerate(drafts))
    if shortages:
        raise ConfigError(_complaint(shortages, questions, sum(len(lore.entities) for lore in lores.values())))
    return asked


def _draw_split(split: Split, lore: Lore, size: int, dice: Dice, shortages: list[Shortage]) -> list[Draft]:
    drafts: list[Draft] = []
    seen: set[str | tuple[str, ...]] = set()
    for kind, wanted in shares({kind: share for kind, (share, _) in MIX.items()}, size).items():
        found = list(_draw_kind(kind, wanted, lore, dice, seen))
        drafts += found
        if len(found) < wanted:
            shortages.append(Shortage(split, kind, len(found), wanted))
    return dice.shuffled(drafts)


def _draw_kind(kind: str, wanted: int, lore: Lore, dice: Dice, seen: set[str | tuple[str, ...]]) -> Iterator[Draft]:
    """The kind's quota. What an exhausted form leaves undrawn falls to the kind's other forms."""
    forms = MIX[kind][1]
    missing = 0
    for name, quota in shares({name: share for name, (share, _) in forms.items()}, wanted).items():
        found = list(_draw_form(forms[name][1], quota, lore, dice, seen))
        yield from found
        missing += quota - len(found)
    for _, draw in forms.values():
        found = list(_draw_form(draw, missing, lore, dice, seen))
        yield from found
        missing -= len(found)


def _draw_form(draw: Draw, quota: int, lore: Lore, dice: Dice, seen: set[str | tuple[str, ...]]) -> Iterator[Draft]:
    failures = made = 0
    while made < quota and failures < PATIENCE:
        draft = draw(lore, dice)
        if draft is None or draft.text in seen or draft.key in seen or leaks(draft):
            failures += 1
            continue
        seen.update((draft.text, draft.key))
        failures, made = 0, made + 1
        yield draft


def shares(weights: Mapping[str, int], total: int) -> dict[str, int]:
    """Split `total` by weight into whole numbers; what rounding leaves goes to the largest remainders."""
    whole = sum(weights.values())
    parts = {name: total * weight // whole for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: -(total * weights[name] % whole))
    for name in by_remainder[: total - sum(parts.values())]:
        parts[name] += 1
    return parts


def leaks(draft: Draft) -> bool:
    """Whether the question gives away an answer that someone would have to look up."""
    text = _words(draft.text)
    return any(hop.answer != draft.value and _words(hop.answer) in text for hop in draft.hops)


def _words(text: str) -> str:
    return f" {re.sub(r'[^a-z0-9]+', ' ', text.lower()).strip()} "


def _question(draft: Draft, split: Split, number: int) -> Question:
    hops = [{"question": hop.question, "answer": hop.answer, "support": hop.fact.subject} for hop in draft.hops]
    metadata = {
        "kind": draft.kind,
        "form": draft.form,
        "hops": len(hops),
        "workflow": draft.workflow,
        "decomposition": hops,
        "supporting_titles": list(dict.fromkeys(hop.fact.subject for hop in draft.hops)),
        "facts": [[hop.fact.subject, hop.fact.relation] for hop in draft.hops],
    }
    if draft.value:
        metadata["value"] = draft.value
    if draft.limit is not None:
        metadata["limit"] = draft.limit
    return Question(f"{split}-{number:05d}", draft.text, draft.answers, "world", metadata)


def _complaint(shortages: list[Shortage], questions: int, pages: int) -> str:
    worst = min(shortages, key=lambda shortage: shortage.made / shortage.wanted)
    fraction = worst.made / worst.wanted * 0.9
    advice = f"ask for at most {int(questions * fraction)}" if fraction else "ask for fewer"
    needed = f" or give about {int(pages / fraction)} pages" if fraction else " or give more pages"
    return (
        f"{pages} pages are too few for {questions} questions: only {worst.made} of {worst.wanted} {worst.kind} "
        f"ones could be made for {worst.split}; {advice}{needed}"
    )
