"""Take the pictures of the viewer in docs/images, with headless Chromium.

What they show is a scripted team over the built-in world: an apprentice whose skill is a number, so that there is
something to compare and something that rises. It stands for no model and no result; folders say "scripted".

Usage: python scripts/screenshots.py [--out docs/images] [--chromium /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jade.backbone.scripted import ScriptedBackbone
from jade.config import RetrievalConfig, RewardConfig, ServeConfig, TeamConfig
from jade.corpus.world import make_world, write_world
from jade.corpus.world.model import World
from jade.corpus.world.oracle import oracle
from jade.engine.record import append_traces
from jade.engine.rollout import Job, rollout
from jade.engine.seeds import derive_seed
from jade.learn.figures import rollout_figures
from jade.retrieval.base import Retriever
from jade.serve.keys import Keyring
from jade.serve.listen import make_server, open_socket, url_of
from jade.serve.room import answering_app
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Prompt, Question

PAGES, QUESTIONS, SEED = 300, 300, 0
ITERATIONS, PER_ITERATION = 80, 24
WIDTH, HEIGHT, SCALE = 1440, 900, 1.5
NUM_EXACT = 128
"""Colours of a picture that are kept as they are; C = colours in it, K = colours kept."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_TITLES = re.compile(r"^Document(\d+) \((.*?)\): ", re.MULTILINE)
_KNOWN = re.compile(r"^Known: (.*\?) (.*)$", re.MULTILINE)


class Apprentice:
    """A team that knows the world's gold plans and answers, and follows them as well as its skill allows."""

    def __init__(self, world: World, skill: float) -> None:
        self._known = oracle(world)
        self._skill = skill

    def __call__(self, prompt: Prompt) -> str:
        text = prompt.user.rsplit("Question: ", 1)[1]
        question = self._known.get(text)
        luck = derive_seed(prompt.role, prompt.user, SEED) / 2**63
        play: dict[str, Callable[[str, Question | None, Prompt, float], str]] = {
            "P": self._plan, "QDS": self._split, "QDP": self._split, "QR": self._query, "DS": self._pick,
            "AG": self._read, "AS": self._sum_up,
        }  # fmt: skip
        if luck < 0.16 * (1 - self._skill):
            return "Sure! Here is what I think about it."
        return play[prompt.role](text, question, prompt, luck)

    def _does_well(self, luck: float, base: float) -> bool:
        return luck < base + (1 - base) * self._skill

    def _plan(self, text: str, question: Question | None, prompt: Prompt, luck: float) -> str:
        gold = question.metadata["workflow"] if question else "one-round"
        plain = "QR,R,DS,AG" if luck > 0.5 or self._skill > 0.6 else "R,AG"
        plan = plain if gold == "one-round" or not self._does_well(luck, 0.25) else gold
        return f"<workflow>{plan}</workflow>"

    def _split(self, text: str, question: Question | None, prompt: Prompt, luck: float) -> str:
        if question is None or len(question.metadata["decomposition"]) < 2:
            return f"<q1>{text}</q1>"
        hops = [hop["question"] for hop in question.metadata["decomposition"]]
        return "".join(f"<q{number}>{hop}</q{number}>" for number, hop in enumerate(hops, start=1))

    def _query(self, text: str, question: Question | None, prompt: Prompt, luck: float) -> str:
        words = [word for word in re.findall(r"[\w']+", text) if word.lower() not in _SMALL_WORDS]
        return f"<query>{' '.join(words)}</query>"

    def _pick(self, text: str, question: Question | None, prompt: Prompt, luck: float) -> str:
        shown = _TITLES.findall(prompt.user)
        gold = set(question.metadata["supporting_titles"]) if question else set()
        useful = [number for number, title in shown if title in gold]
        if not self._does_well(luck, 0.3):
            useful = [number for number, _ in shown if number not in useful][:2]
        return f"<id>{','.join(f'Document{number}' for number in useful)}</id>"

    def _read(self, text: str, question: Question | None, prompt: Prompt, luck: float) -> str:
        titles = [title for _, title in _TITLES.findall(prompt.user)]
        found = question is not None and set(question.metadata["supporting_titles"]) & set(titles)
        if question is not None and found and self._does_well(luck, 0.5):
            return f"<answer>{question.answers[0]}</answer>"
        return f"<answer>{titles[0] if titles else 'not known'}</answer>"

    def _sum_up(self, text: str, question: Question | None, prompt: Prompt, luck: float) -> str:
        known = _KNOWN.findall(prompt.user)
        golds = [hop["answer"] for hop in question.metadata["decomposition"]] if question else []
        if question is not None and [answer for _, answer in known] == golds:
            return f"<answer>{question.answers[0]}</answer>"
        return f"<answer>{known[-1][1] if known else 'not known'}</answer>"


_SMALL_WORDS = frozenset(["of", "the", "in", "is", "was", "were", "did", "who", "what", "which", "when", "where"])


def crew_of(world: World, retriever: Retriever, skill: float, delay_seconds: float = 0.0) -> Crew:
    backbone = ScriptedBackbone(Apprentice(world, skill), delay_seconds)
    return Crew(build_team(TeamConfig()), Cast(backbone), retriever, k=5)


async def write_runs(world: World, retriever: Retriever, folder: Path) -> None:
    """An evaluation before and after, and a training run in between."""
    evaluation = folder / "scripted-evaluation"
    evaluation.mkdir()
    (evaluation / "run.json").write_text(json.dumps({"schema": 1, "config": {"reward": {"alpha": 0.05}}}))
    questions = [replace(question, dataset=question.metadata["kind"]) for question in world.questions]
    for name, skill in (("untrained", 0.1), ("trained", 0.93)):
        traces = await rollout([Job(q) for q in questions], crew_of(world, retriever, skill, 0.08), concurrency=128)
        append_traces(evaluation / "world" / name / "traces.jsonl", traces)
    await write_training(questions, world, retriever, folder / "scripted-run")


async def write_training(questions: Sequence[Question], world: World, retriever: Retriever, folder: Path) -> None:
    reward = RewardConfig(alpha=0.05)
    (folder / "traces").mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    for iteration in range(1, ITERATIONS + 1):
        skill = 0.95 * (1 - math.exp(-iteration / 24)) - (0.25 if 30 <= iteration < 32 else 0)
        first = iteration * PER_ITERATION % len(questions)
        jobs = [Job(q, seed=iteration) for q in (*questions, *questions)[first : first + PER_ITERATION]]
        traces = await rollout(jobs, crew_of(world, retriever, skill))
        figures = rollout_figures(traces, reward) | update(iteration)
        lines.append({"kind": "iteration", "iteration": iteration, **figures})
        if iteration == 32:
            lines.append(GUARD)
        if iteration % 10 == 0:
            measured = await rollout([Job(q) for q in questions[:60]], crew_of(world, retriever, skill))
            lines.append({"kind": "dev", "iteration": iteration, **rollout_figures(measured, reward)})
        if iteration % 10 == 1:
            append_traces(folder / "traces" / f"iteration-{iteration:06d}.jsonl", traces)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


GUARD = {
    "kind": "guard",
    "iteration": 32,
    "event": "kl",
    "detail": "moved 0.61 nats a token from the sampler, allowed are 0.5",
    "back_to": 30,
    "scale": 0.5,
}


def update(iteration: int) -> dict[str, float]:
    """Figures of an update that did not happen: smooth shapes with a little noise."""
    noise = derive_seed("noise", iteration) / 2**63
    spike = 0.5 if iteration == 32 else 0.0
    return {
        "approx_kl": 0.004 + 0.004 * noise + spike * 0.06,
        "entropy": 0.18 + 0.75 * math.exp(-iteration / 30) + 0.05 * noise,
        "clipped": 0.02 + 0.02 * noise + spike * 0.1,
        "seconds": 9.0 + noise,
        "tokens/P": 21_000.0 + 4000 * noise,
        "tokens/AG": 16_000.0,
    }


@contextmanager
def serving(crew: Crew, runs: Path) -> Iterator[str]:
    config = ServeConfig(port=0, runs=(runs,))
    server, sock = make_server(answering_app(crew, config, Keyring()), config), open_socket(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
    thread.start()
    try:
        yield f"{url_of(sock)}/ui/"
    finally:
        server.stop()
        thread.join(timeout=20)


def take_pictures(url: str, world: World, out: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    question = next(q for q in world.test if q.metadata["kind"] == "serial" and q.metadata["hops"] == 3)
    parallel = next(q for q in world.test if q.metadata["kind"] == "parallel" and q.metadata["hops"] == 3)
    key = f"{question.id}@0".replace("@", "%40")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for theme in ("light", "dark"):
            page = _page(browser, theme)
            page.goto(f"{url}#/traces/trained/{key}/0.1:3")
            page.locator(".detail .passage").first.wait_for()
            page.locator('.row[aria-selected="true"]').wait_for()
            page.screenshot(path=out / f"viewer-{theme}.png")
        page = _page(browser, "light")
        page.goto(f"{url}#/compare/untrained/trained/{question.id}")
        page.locator(".tree-pane .step").nth(8).wait_for()
        page.screenshot(path=out / "compare.png")
        page.goto(f"{url}#/training/scripted-run")
        page.locator(".chart .line").first.wait_for()
        page.screenshot(path=out / "training.png")
        page.goto(f"{url}#/ask")
        page.get_by_label("Your question").fill(parallel.text)
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator(".step.busy").nth(2).wait_for()
        page.locator('.step[data-role="R"]').nth(1).wait_for()
        page.screenshot(path=out / "ask.png")
        _phone(browser, f"{url}#/traces/trained/{key}", out / "phone.png")
        browser.close()


def _page(browser: Any, theme: str) -> Any:
    size = {"width": WIDTH, "height": HEIGHT}
    page = browser.new_page(viewport=size, device_scale_factor=SCALE, color_scheme=theme, reduced_motion="reduce")
    page.set_default_timeout(30_000)
    return page


def _phone(browser: Any, address: str, path: Path) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 820}, device_scale_factor=2, color_scheme="dark")
    page.goto(address)
    page.locator(".tree .step").first.wait_for()
    page.screenshot(path=path)


def shrink(path: Path) -> None:
    """A third of the size: the most frequent colours stay exactly, each of the others becomes the nearest one kept."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    colours_C3, place, counts_C = np.unique(
        np.asarray(picture).reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    frequent = colours_C3[np.argsort(-counts_C)[:NUM_EXACT]]
    spread = picture.quantize(256 - len(frequent), method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    kept_K3 = np.concatenate([frequent, np.reshape(spread, (-1, 3))])[:256]
    nearest_C = np.square(colours_C3[:, None].astype(int) - kept_K3[None]).sum(axis=2).argmin(axis=1)
    small = Image.fromarray(nearest_C[place].reshape(picture.height, picture.width).astype(np.uint8), mode="P")
    small.putpalette(kept_K3.flatten().tolist())
    small.save(path, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--chromium", default=shutil.which("chromium") or "/usr/bin/chromium")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    from jade.cli.index import index_documents
    from jade.retrieval.open import open_retriever

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = make_world(PAGES, QUESTIONS, SEED)
        write_world(world, folder / "world")
        index_documents([folder / "world" / "pages"], folder / "index")
        retrieval = RetrievalConfig(index=str(folder / "index"), inline=True)
        (folder / "runs").mkdir()
        asyncio.run(write_runs(world, open_retriever(retrieval), folder / "runs"))
        with serving(crew_of(world, open_retriever(retrieval), 0.95, 0.35), folder / "runs") as url:
            take_pictures(url, world, options.out, options.chromium)
    for path in options.out.glob("*.png"):
        shrink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
