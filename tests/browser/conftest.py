"""A headless Chromium, and pages that fail the test when anything goes wrong in them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "serve"))

CHROMIUM = os.environ.get("JADE_CHROMIUM") or shutil.which("chromium") or ""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
"""For what a page must show sooner or later: assertions about it wait, by `expect`, and fail only after this."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each file: its driver runs an event loop in this thread, which must not outlive the file's tests."""
    if not CHROMIUM:
        pytest.skip("no chromium; install it or set JADE_CHROMIUM to its path")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=PATIENCE_MS)
        yield browser
        browser.close()


class Watched:
    """What went wrong in a page, and where it went."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", self._hear)
        page.on("dialog", self._dismiss)
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "401" not in message.text:
            self.complaints.append(f"console: {message.text}")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 by 800; it must not complain, and must talk to one host only."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    watched = Watched(page)
    yield page
    context.close()
    assert watched.complaints == []
    assert len(watched.hosts) <= 1, watched.hosts
