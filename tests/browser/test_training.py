"""The dashboard of a run that is going on: it grows on the page, without anybody reloading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def points(page: Any, title: str) -> int:
    """How many points the first line of a chart has."""
    chart = page.locator(".chart", has=page.get_by_role("heading", name=title, exact=True))
    return str(chart.locator(".line").first.get_attribute("d")).count("L") + 1


def test_a_run_in_progress_grows_on_the_page(page: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").touch()
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/")
        page.locator(".pulse", has_text="no iteration yet").wait_for()

        write(folder, *map(iteration, (1, 2, 3)))
        page.locator(".pulse.live", has_text="iteration 3").wait_for()
        assert points(page, "Reward") == 3
        assert page.locator(".chart .area").count() == 2
        assert not page.locator(".events").is_visible()

        append_traces(folder / "traces" / "iteration-000001.jsonl", make_traces())
        write(folder, iteration(4), GUARD, DEV)
        page.locator(".pulse.live", has_text="iteration 4").wait_for()
        for title in ("Reward", "Outcome (F1)", "Rounds and searches", "Entropy", "Tokens trained on a second"):
            assert points(page, title) == 4, title
        assert page.locator(".chart .dot").count() >= 1
        assert "moved too far" in page.locator(".events").inner_text()
        assert page.locator(".chart:visible .event").count() >= 8
        page.get_by_role("link", name="iteration 1").wait_for()
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_a_run_that_was_resumed_forgets_what_was_undone(page: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, *map(iteration, range(1, 7)))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/#/training/run")
        page.locator(".pulse", has_text="iteration 6").wait_for()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(iteration(n)) + "\n" for n in (1, 2)))
        page.locator(".pulse", has_text="iteration 2").wait_for()
        assert points(page, "Reward") == 2


def test_a_run_that_begins_later_appears_in_the_bar(page: Any, tmp_path: Path) -> None:
    append_traces(tmp_path / "asked.jsonl", make_traces())
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path)]), Keyring())
    with serving(app) as url:
        page.goto(f"{url}/ui/")
        page.locator(".tree .step").first.wait_for()
        assert page.get_by_role("link", name="Training").count() == 0
        (tmp_path / "run").mkdir()
        write(tmp_path / "run", iteration(1))
        page.get_by_role("link", name="Training").click()
        page.locator(".pulse", has_text="iteration 1").wait_for()
