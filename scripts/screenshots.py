"""Take the pictures of the viewer in docs/images from real runs, with headless Chromium.

Nothing in them is made up: the runs are those of `jade eval` and `jade train`, and the question is asked live of a
served model. Which question is shown is chosen by rule (several hops, answered right), not by hand.

    python scripts/screenshots.py --index INDEX --model MODEL --question TEXT \
        --viewer EVAL_RUN --before EVAL_RUN --after EVAL_RUN --training TRAIN_RUN [--out docs/images]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import urlopen

WIDTH, HEIGHT, SCALE = 1440, 900, 1.5
PHONE = {"width": 400, "height": 820}
WAIT_MS = 900_000
"""A small model on a busy processor takes its time."""
NUM_EXACT = 128
"""Colours of a picture that are kept as they are; C = colours in it, K = colours kept."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@contextmanager
def serving(options: argparse.Namespace) -> Iterator[str]:
    """`jade serve` over the model and the runs; gives its address."""
    runs = {path for path in (options.viewer, options.before, options.after, options.training) if path}
    views = [word for path in sorted(runs) for word in ("--view", str(path))]
    call = [sys.executable, "-m", "jade", "serve", "--index", options.index, "--model", options.model, "--port", "0"]
    process = subprocess.Popen([*call, *views], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://[\d.]+:\d+", said)
        if not found:
            raise SystemExit(said + process.stderr.read())
        yield found[0]
    finally:
        process.terminate()
        process.wait(timeout=200)
        process.stderr.close()


class Album:
    """The pictures, one function each; what a picture shows is asked of the server."""

    def __init__(self, url: str, browser: Any, out: Path) -> None:
        self.url, self.browser, self.out = url, browser, out

    def get(self, path: str, **params: Any) -> Any:
        return json.load(urlopen(f"{self.url}/v1{path}?{urlencode(params)}"))

    def run_name(self, folder: Path) -> str:
        """What the server calls the run of a folder."""
        runs = self.get("/runs")["runs"]
        return next(str(run["name"]) for run in runs if folder.name in (run["title"], run["group"]))

    def page(self, theme: str = "light", size: dict[str, int] | None = None, scale: float = SCALE) -> Any:
        size = size or {"width": WIDTH, "height": HEIGHT}
        page = self.browser.new_page(
            viewport=size, device_scale_factor=scale, color_scheme=theme, reduced_motion="reduce"
        )
        page.set_default_timeout(WAIT_MS)
        return page

    def shoot(self, page: Any, name: str) -> None:
        page.wait_for_timeout(400)
        page.screenshot(path=self.out / name)
        page.close()
        shrink(self.out / name)

    def viewer(self, folder: Path) -> None:
        """A question that took several hops and was answered right, open at what one of them found."""
        run = self.run_name(folder)
        sort = {"sort": "rounds", "descending": True, "limit": 500}
        rows = self.get(f"/runs/{run}/rows", workflow="QDS", verdict="right", **sort)["rows"]
        key = next(row["key"] for row in rows if row["score"] == 1)
        trace = self.get(f"/runs/{run}/traces/{quote(key)}")
        shown = [step for step in trace["steps"] if step["passages"]]
        step = next((step for step in shown if any(passage["chosen"] for passage in step["passages"])), shown[0])["id"]
        address = f"{self.url}/ui/#/traces/{run}/{quote(key, safe='')}"
        for theme in ("light", "dark"):
            page = self.page(theme)
            page.goto(f"{address}/{quote(step, safe='')}")
            page.locator(".detail .passage").first.wait_for()
            page.locator('.row[aria-selected="true"]').wait_for()
            self.shoot(page, f"viewer-{theme}.png")
        phone = self.page("dark", PHONE, 2.0)
        phone.goto(address)
        phone.locator(".tree .step").first.wait_for()
        self.shoot(phone, "phone.png")

    def compare(self, before: Path, after: Path) -> None:
        """The first question that was won and is worked in several rounds afterwards."""
        names = {"before": self.run_name(before), "after": self.run_name(after)}
        won = self.get("/compare", **names, change="better", limit=500)["pairs"]
        pair = max(won, key=lambda pair: min(pair["after"]["rounds"], 4) + pair["gain"])
        page = self.page()
        page.goto(f"{self.url}/ui/#/compare/{names['before']}/{names['after']}/{quote(pair['name'], safe='')}")
        page.locator(".tree-pane .step").nth(4).wait_for()
        self.shoot(page, "compare.png")

    def training(self, folder: Path) -> None:
        page = self.page()
        page.goto(f"{self.url}/ui/#/training/{self.run_name(folder)}")
        page.locator(".chart .line").first.wait_for()
        self.shoot(page, "training.png")

    def ask(self, question: str) -> None:
        """While the team is at work: some sub-questions are answered, and what was found for the first is open."""
        page = self.page()
        page.goto(f"{self.url}/ui/#/ask")
        page.get_by_label("Your question").fill(question)
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator('.node .node .step[data-role="R"]').first.click()
        page.locator(".node .node .node-answer").nth(2).or_(page.locator(".said")).first.wait_for()
        self.shoot(page, "ask.png")


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


def take_pictures(url: str, options: argparse.Namespace) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=options.chromium, args=FLAGS)
        album = Album(url, browser, options.out)
        if options.viewer:
            album.viewer(options.viewer)
        if options.before and options.after:
            album.compare(options.before, options.after)
        if options.training:
            album.training(options.training)
        if options.question:
            album.ask(options.question)
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True, help="index that the live question is asked over")
    parser.add_argument("--model", default="jade-135m", help="model that answers it")
    parser.add_argument("--question", default="", help="the live question; without one no picture of it is taken")
    for name in ("viewer", "before", "after", "training"):
        parser.add_argument(f"--{name}", type=Path, help="folder of the run shown there")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--chromium", default=shutil.which("chromium") or "/usr/bin/chromium")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with serving(options) as url:
        take_pictures(url, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
