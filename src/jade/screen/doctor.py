"""What can be done with JADE on this machine, and what it lacks, before the first question is asked.

Each check is a row. One that raises has found what is broken, and what it raised is what is said.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from typing import Literal

from jade.backbone.open import open_backbone
from jade.backbone.weights import default_cache
from jade.config import Config
from jade.errors import JadeError
from jade.extras import EXTRAS, PURPOSES, how_to_get
from jade.retrieval.open import open_retriever
from jade.team.roles import Memory
from jade.team.team import build_team
from jade.types import Generation, Malformed, Sampling

State = Literal["works", "missing", "broken"]
QUESTION = "Who wrote the novel Emma?"
"""What a model is asked to plan, and an index to find."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    name: str
    state: State
    what: str


async def examine(config: Config, *, model: bool, index: bool) -> list[Finding]:
    """All findings; the model and the index of the config are tried where that is asked for."""
    findings = [_machine(), *_extras(config), _weights()]
    if index:
        findings.append(await _tried(f"index {config.retrieval.index}", _search, config))
    if model:
        findings.append(await _tried(f"model {config.backbone.model}", _ask, config))
    return findings


def _machine() -> Finding:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0.0
    room = f", {memory:.0f} GiB of memory" if memory else ""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{room}"
    return Finding("jade", "works", f"{version('jade-team')} on Python {platform.python_version()}, {system}")


def _extras(config: Config) -> Iterator[Finding]:
    """What is there of each extra. Only torch is loaded: it is the one that is often built for another machine."""
    names = packages_distributions()
    for extra, packages in EXTRAS.items():
        absent = [package for package in packages if find_spec(package) is None]
        if absent:
            yield Finding(PURPOSES[extra], "missing", f"no {', '.join(absent)}: {how_to_get(extra)}")
            continue
        held = ", ".join(f"{package} {_version(names.get(package, [package])[0])}" for package in packages)
        place = _place(config) if extra == "local" else Finding("", "works", "")
        yield Finding(PURPOSES[extra], place.state, "; ".join(filter(None, (place.what, held))))


def _place(config: Config) -> Finding:
    try:
        from jade.backbone.local.place import describe_place

        return Finding("", "works", describe_place(config.backbone))
    except JadeError as error:  # a setting asks for what is not here, and says so itself
        return Finding("", "broken", _said(error))
    except Exception as error:
        return Finding("", "broken", f"{_said(error)}; install it again: {how_to_get('local')}")


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "of unknown version"


def _weights() -> Finding:
    """Models that were fetched, and the room for more."""
    folder = default_cache() / "weights"
    held = sorted(path for path in folder.glob("*") if path.is_dir() and not path.name.startswith("."))
    size = sum(file.stat().st_size for path in held for file in path.rglob("*") if file.is_file())
    there = f"{', '.join(path.name for path in held)} ({size / 1e6:.0f} MB)" if held else "none yet"
    above = next(place for place in (folder, *folder.parents) if place.is_dir())
    return Finding("fetched models", "works", f"{there} in {folder}; {shutil.disk_usage(above).free / 1e9:.0f} GB free")


async def _tried(name: str, act: Callable[[Config], Awaitable[str]], config: Config) -> Finding:
    try:
        return Finding(name, "works", await act(config))
    except Exception as error:
        return Finding(name, "broken", _said(error))


async def _search(config: Config) -> str:
    retriever = open_retriever(config.retrieval)
    try:
        started = time.perf_counter()
        (found,) = await retriever.search([QUESTION], config.retrieval.k)
    finally:
        await retriever.close()
    return f"{len(found)} passages found in {1000 * (time.perf_counter() - started):.0f} ms"


async def _ask(config: Config) -> str:
    """Let the planner plan: whether the model answers, knows the formats, and could be trained by its outputs."""
    team = build_team(config.team)
    seen = team.planner.view(Memory(QUESTION, legal=team.legal(child=False).codes))
    backbone = open_backbone(config.backbone)
    try:
        sampling = Sampling(max_tokens=team.planner.max_tokens)
        generation = await backbone.generate(team.render(team.planner.code, seen), sampling)
    finally:
        await backbone.close()
    plan = team.planner.parse(generation.text, seen)
    knows = (
        "its plan cannot be read, so that fallbacks run: teach it with jade warmstart"
        if isinstance(plan, Malformed)
        else f"plans {generation.text.strip()}"
    )
    return f"answers in {generation.seconds:.1f} s; {knows}; {_of_training(generation)}"


def _of_training(generation: Generation) -> str:
    whole = len(generation.token_ids) == len(generation.logprobs) > 0
    return f"gives {'' if whole else 'no '}token ids with log-probs, which training needs"


def _said(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__
