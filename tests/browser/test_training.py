"""The dashboard of a run that is going on: it grows on the page, without anybody reloading it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from serve_builders import make_config, make_crew, serving
from trace_builders import make_traces

from jade.engine.record import append_traces
from jade.serve.keys import Keyring
from jade.serve.room import viewing_app


def iteration(number: int) -> dict[str, Any]:
    return {
        "kind": "iteration",
        "iteration": number,
        "reward": 0.1 * number,
        "outcome": 0.1 * number,
        "rounds": 1.0 + number,
        "retrievals": 1.0,
        "malformed/P": 0.5 / number,
        "malformed/AG": 0.25 / number,
        "approx_kl": 0.01 * number,
        "entropy": 1.0 / number,
        "tokens/P": 1000.0 * number,
        "seconds": 2.0,
        "plan/QDS": 0.1 * number,
        "plan/R,AG": 1 - 0.1 * number,
    }


GUARD = {"kind": "guard", "iteration": 4, "event": "kl", "detail": "moved too far", "back_to": 3, "scale": 0.5}
DEV = {"kind": "dev", "iteration": 4, "reward": 0.33, "outcome": 0.4}


def write(folder: Path, *rows: dict[str, Any]) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def expect_points(page: Page, title: str, number: int) -> None:
    """The first line of a chart has so many points."""
    chart = page.locator(".chart", has=page.get_by_role("heading", name=title, exact=True))
    expect(chart.locator(".line").first).to_have_attribute("d", re.compile(rf"^[^L]*(L[^L]*){{{number - 1}}}$"))


def test_a_run_in_progress_grows_on_the_page(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").touch()
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/")
        expect(page.locator(".pulse")).to_contain_text("no iteration yet")
        expect(page.get_by_text("Nothing written yet")).to_be_visible()
        expect(page.locator(".card:visible")).to_have_count(0)

        write(folder, *map(iteration, (1, 2, 3)))
        expect(page.locator(".pulse.live")).to_contain_text("iteration 3")
        expect_points(page, "Reward", 3)
        expect(page.get_by_text("Nothing written yet")).to_be_hidden()
        expect(page.locator(".chart .area")).to_have_count(2)
        expect(page.locator(".events")).to_be_hidden()

        append_traces(folder / "traces" / "iteration-000001.jsonl", make_traces())
        write(folder, iteration(4), GUARD, DEV)
        expect(page.locator(".pulse.live")).to_contain_text("iteration 4")
        for title in ("Reward", "Outcome", "Rounds and searches", "Entropy", "Tokens trained on a second"):
            expect_points(page, title, 4)
        expect(page.locator(".chart .dot").first).to_be_attached()
        expect(page.locator(".events")).to_contain_text("moved too far")
        expect(page.locator(".chart:visible .event").nth(7)).to_be_attached()
        expect(page.get_by_role("link", name="iteration 1")).to_be_visible()
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_a_run_that_was_resumed_forgets_what_was_undone(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, *map(iteration, range(1, 7)))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/#/training/run")
        expect(page.locator(".pulse")).to_contain_text("iteration 6")
        (folder / "metrics.jsonl").write_text("".join(json.dumps(iteration(n)) + "\n" for n in (1, 2)))
        expect(page.locator(".pulse")).to_contain_text("iteration 2")
        expect_points(page, "Reward", 2)


def test_a_run_that_begins_later_appears_in_the_bar(page: Page, tmp_path: Path) -> None:
    append_traces(tmp_path / "asked.jsonl", make_traces())
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/")
        expect(page.locator(".tree .step").first).to_be_visible()
        expect(page.get_by_role("link", name="Training")).to_have_count(0)
        (tmp_path / "run").mkdir()
        write(tmp_path / "run", iteration(1))
        page.get_by_role("link", name="Training").click()
        expect(page.locator(".pulse")).to_contain_text("iteration 1")


def test_what_selectors_keep_is_drawn_where_any_work(page: Page, tmp_path: Path) -> None:
    kept = {"selection/kept": 0.4, "selection/held": 0.9, "selection/from_top": 0.8}
    for name, more in (("plain", {}), ("selecting", kept)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, *(iteration(number) | more for number in (1, 2)))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/#/training/selecting")
        chart = page.locator(".chart", has=page.get_by_role("heading", name="Selection", exact=True))
        for line in ("passages kept", "an answer kept", "an answer in as many from the top"):
            expect(chart).to_contain_text(line)
        page.goto(f"{url}/ui/#/training/plain")
        expect(page.locator(".pulse")).to_contain_text("iteration 2")
        expect(chart).to_be_hidden()


def test_a_long_run_is_drawn_with_no_more_points_than_there_is_room_for(page: Page, tmp_path: Path) -> None:
    """As one value after the other they were more than a call takes arguments, and the page drew nothing further."""
    roles = {f"malformed/{code}": 0.1 for code in ("P", "QDS", "QDP", "QR", "DS", "AG", "AS")}
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", *({**iteration(1), **roles, "iteration": number} for number in range(1, 25_001)))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/")
        expect(page.locator(".pulse")).to_contain_text("iteration 25,000")
        lines = page.locator(".chart:visible .line")
        expect(page.locator(".chart", has_text="Malformed output by role").locator(".line")).to_have_count(7)
        drawn = [str(lines.nth(place).get_attribute("d")).count("L") for place in range(lines.count())]
        assert 50 < max(drawn) < 500
