"""The viewer on a large file: 10,000 traces of 20 kB, over HTTP and, where Chromium is there, in the page itself.

Run by `python benchmarks/serve.py --only viewer`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from jade.engine.record import trace_to_json
from jade.engine.solve import solve
from jade.types import Question
from serve import QUESTION, make_crew, megabytes, server


def write_traces(path: Path, num: int) -> None:
    """Traces with token ids and passages, about 20 kB each, no two of the same words."""
    dice = random.Random(0)
    words = [f"{a}{b}{c}" for a in ("ba", "do", "fe", "li", "mu") for b in "rtnslk" for c in ("en", "ow", "is", "ard")]
    base = trace_to_json(asyncio.run(solve(Question("q", QUESTION, ("Jane Austen",)), make_crew(0.0))))
    with path.open("w", encoding="utf-8") as file:
        for number in range(num):
            base["id"], base["question"]["id"] = f"q{number}@0", f"q{number}"
            base["question"]["text"] = f"Who founded the {dice.choice(words)} of {dice.choice(words)} number {number}?"
            for passage in base["passages"]:
                passage["text"] = " ".join(dice.choices(words, k=260))
            for step in base["steps"]:
                if "generation" in step:
                    step["generation"]["prompt_ids"] = dice.choices(range(50_000), k=700)
            file.write(json.dumps(base, separators=(",", ":")) + "\n")


def measure_viewer(num: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        write_traces(path, num)
        size = path.stat().st_size / 1e6
        with server("viewer", str(path)) as (url, pid):
            print(f"\n{num:,} traces, {size:.0f} MB\n\n| | |\n|---|---|")
            for name, value in _look(f"{url}/v1/runs/traces", num):
                print(f"| {name} | {value} |", flush=True)
            print(f"| server memory | {megabytes(pid):.0f} MB |")
        for name, value in measure_page(path, num):
            print(f"| {name} | {value} |", flush=True)


WATCH = """
const marks = (window.marks = {});
const look = () => {
  const said = document.querySelector(".list-summary")?.textContent ?? "";
  if (document.querySelector(".row:not(.loading)")) marks.first ??= performance.now();
  if (said && !said.includes("still reading") && said.includes("questions")) marks.all ??= performance.now();
};
new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""From the start of the navigation, in the page's own clock."""

SCROLL = """async (seconds) => {
  const list = document.querySelector(".list"), frames = [];
  let blank = 0, last = performance.now();
  for (const end = last + seconds * 1000; last < end; ) {
    list.scrollTop += 90;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
    blank += document.querySelectorAll(".row.loading").length > 0;
  }
  frames.sort((a, b) => a - b);
  return { num: frames.length, p99: frames[Math.floor(frames.length * 0.99)], blank: blank / frames.length };
}"""
"""Scrolls as fast as a wheel is turned, one step a frame; a blank frame has rows in it whose data is not there yet."""


def measure_page(path: Path, num: int, seconds: float = 5.0) -> Iterator[tuple[str, str]]:
    """A server that has read nothing yet, and the page opened on it."""
    chromium = os.environ.get("JADE_CHROMIUM") or shutil.which("chromium")
    if not chromium or not find_spec("playwright"):
        return
    from playwright.sync_api import sync_playwright

    with server("viewer", str(path)) as (url, _), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(WATCH)
        page.goto(f"{url}/ui/")
        whole = page.locator(".list-summary", has_text=f"{num:,} questions").filter(has_not_text="still reading")
        whole.wait_for(timeout=60_000)
        first, last = (page.evaluate(f"window.marks.{mark}") / 1000 for mark in ("first", "all"))
        yield "in Chromium: first rows", f"{first:.2f} s"
        yield "in Chromium: all rows, filters and counts", f"{last:.2f} s"
        seen = page.evaluate(SCROLL, seconds)
        yield (
            "in Chromium: scrolling",
            (
                f"{seen['num'] / seconds:.0f} frames/s, 99 % within {seen['p99']:.0f} ms, "
                f"{seen['blank']:.1%} with rows still to come"
            ),
        )
        browser.close()


def _look(run: str, num: int) -> Iterator[tuple[str, str]]:
    started = time.monotonic()
    first = _get(f"{run}/rows?limit=100")
    yield "first 100 rows", f"{time.monotonic() - started:.2f} s, of {first['total']:,} read so far"
    while not _get(f"{run}/rows?limit=0")["complete"]:
        pass
    yield "all rows, filters and counts", f"{time.monotonic() - started:.2f} s"
    requests = {
        "a page of 100 rows further down": f"rows?limit=100&offset={num // 2}",
        "one trace": f"traces/q{num // 2}@0",
        "a filter over all": "rows?limit=100&min_rounds=1&sort=tokens",
        "full-text search over all, two words": "rows?limit=100&q=baren+murard",
    }
    for name, path in requests.items():
        started = time.monotonic()
        _get(f"{run}/{path}")
        yield name, f"{(time.monotonic() - started) * 1000:.0f} ms"


def _get(url: str) -> Any:
    return json.load(urlopen(url))
