"""The grammar of plans: which workflows are legal, how they are printed and read.

A legal workflow is a splitting module alone, or an ordered selection of working modules, without repeats, that
ends in the answering module and in which every module comes after those it needs. The rules are read off the
team's rows, so a team with a role of its own has a grammar of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Literal

from jade.types import Malformed, Workflow

ModuleKind = Literal["split", "work", "answer"]
_TAGGED = re.compile(r"<workflow>([^<>]*)</workflow>")


@dataclass(frozen=True)
class Module:
    """What the grammar knows of one code: its place in a plan and the codes that must stand before it."""

    code: str
    kind: ModuleKind
    after: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Grammar:
    modules: Mapping[str, Module]

    def complaint(self, workflow: Workflow) -> str | None:
        """Why the workflow is not legal; None when it is."""
        codes = workflow.modules
        unknown = [code for code in codes if code not in self.modules]
        if unknown:
            return f"unknown module {unknown[0]!r}"
        if not codes:
            return "no module named"
        if len(set(codes)) < len(codes):
            return "a module is repeated"
        if any(self.modules[code].kind == "split" for code in codes):
            # It ends the round: what stood before it would be lost, and what stood behind it would never run.
            return None if len(codes) == 1 else "a decomposition stands alone"
        return self._complaint_about_order(codes)

    def _complaint_about_order(self, codes: tuple[str, ...]) -> str | None:
        if self.modules[codes[-1]].kind != "answer":
            return f"ends in {codes[-1]}, not in an answer"
        for position, code in enumerate(codes):
            if self.modules[code].kind == "answer" and position < len(codes) - 1:
                return f"{code} is not last"
            missing = self.modules[code].after.difference(codes[:position])
            if missing:
                return f"{code} needs {min(missing)} before it"
        return None

    @cached_property
    def workflows(self) -> tuple[Workflow, ...]:
        """Every legal workflow, splits first, then by length."""
        return tuple(self._enumerate())

    def _enumerate(self) -> Iterator[Workflow]:
        by_kind: dict[str, list[str]] = {"split": [], "work": [], "answer": []}
        for module in self.modules.values():
            by_kind[module.kind].append(module.code)
        yield from (Workflow((code,)) for code in by_kind["split"])
        for size in range(len(by_kind["work"]) + 1):
            for order in permutations(by_kind["work"], size):
                for answer in by_kind["answer"]:
                    workflow = Workflow((*order, answer))
                    if self.complaint(workflow) is None:
                        yield workflow

    def splits(self, workflow: Workflow) -> bool:
        return self.modules[workflow.modules[0]].kind == "split"


def print_workflow(workflow: Workflow | str) -> str:
    """The form in which a planner writes a workflow, given itself or its codes."""
    return f"<workflow>{workflow}</workflow>"


def read_workflow(codes: str) -> Workflow:
    """`QR, R,AG` as a workflow; whether it is legal is the grammar's to say."""
    return Workflow(tuple(code.strip() for code in codes.split(",") if code.strip()))


def parse_workflow(text: str, legal: Collection[str]) -> Workflow | Malformed:
    """The planner's output as a workflow: the tagged form of one of the legal ones, and nothing else."""
    found = _TAGGED.fullmatch(text.strip())
    if not found:
        return Malformed("not of the form <workflow>…</workflow>")
    codes = tuple(code.strip() for code in found[1].split(","))
    printed = ",".join(codes)
    if printed not in legal:
        return Malformed(f"{printed[:80]!r} is not a legal workflow here")
    return Workflow(codes)
