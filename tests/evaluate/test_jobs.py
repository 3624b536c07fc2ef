"""`runs/jobs.py`: jobs of a plan side by side, each once, in an order that lets nobody wait for what never comes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from patience import PATIENCE_SECONDS

RUNS = Path(__file__).parents[2] / "runs"


def work(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUNS / "jobs.py"), str(folder / "plan.toml"), "--out", str(folder / "out"), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)


def write_plan(folder: Path, *jobs: tuple[str, str, list[str]], light: frozenset[str] = frozenset()) -> None:
    rows = [
        f"[[job]]\nname = {json.dumps(name)}\nrun = {json.dumps(run)}\nafter = {json.dumps(after)}\n"
        f"light = {json.dumps(name in light)}\n"
        for name, run, after in jobs
    ]
    (folder / "plan.toml").write_text("\n".join(rows))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def history(folder: Path) -> list[tuple[str, str]]:
    rows = map(json.loads, (folder / "out" / "jobs.jsonl").read_text().splitlines())
    return [(row["job"], row["what"]) for row in rows]


def test_a_job_waits_for_those_it_names(tmp_path: Path) -> None:
    write_plan(tmp_path, ("one", "sleep 0.3; echo made > one", []), ("two", "cat one", ["one"]))
    assert work(tmp_path, "--at-once", "2").returncode == 0
    assert history(tmp_path) == [("one", "begun"), ("one", "done"), ("two", "begun"), ("two", "done")]
    assert (tmp_path / "out" / "log" / "two.txt").read_text() == "made\n"


def test_no_more_than_so_many_share_the_gpu_but_light_jobs_are_not_counted(tmp_path: Path) -> None:
    jobs: list[tuple[str, str, list[str]]] = [(name, "sleep 0.7", []) for name in ("light", "first", "second", "third")]
    write_plan(tmp_path, *jobs, light=frozenset({"light"}))
    assert work(tmp_path, "--at-once", "2").returncode == 0
    begun = [job for job, _ in history(tmp_path)[:3]]
    assert begun == ["light", "first", "second"]
    assert history(tmp_path)[3][1] == "done"


def test_a_failure_stops_only_those_that_wait_for_it_and_is_tried_again(tmp_path: Path) -> None:
    jobs = [("bad", "test -e mended", []), ("child", "true", ["bad"]), ("other", "echo once >> other", [])]
    write_plan(tmp_path, *jobs)
    done = work(tmp_path)
    assert done.returncode == 1
    assert history(tmp_path).count(("bad", "failed")) == 2
    assert ("child", "left out") in history(tmp_path)
    assert ("other", "done") in history(tmp_path)
    (tmp_path / "mended").touch()
    assert work(tmp_path).returncode == 0
    assert history(tmp_path)[-1] == ("child", "done")
    assert (tmp_path / "other").read_text() == "once\n"


def test_a_job_that_fails_once_is_begun_again_when_the_others_are(tmp_path: Path) -> None:
    jobs = [("shy", "test -e made", []), ("child", "true", ["shy"]), ("other", "sleep 0.2; touch made", [])]
    write_plan(tmp_path, *jobs)
    assert work(tmp_path).returncode == 0
    assert [job for job, what in history(tmp_path) if what == "begun"] == ["shy", "other", "shy", "child"]


def test_a_job_that_outlives_its_list_is_waited_for_and_not_begun_beside_itself(tmp_path: Path) -> None:
    """It would write into the run that it is still making."""
    write_plan(tmp_path, ("one", "echo in >> seen; until test -e go; do sleep 0.1; done; echo out >> seen", []))
    command = [sys.executable, str(RUNS / "jobs.py"), "plan.toml", "--out", "out"]
    killed = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_until((tmp_path / "seen").exists)
    killed.kill()
    killed.wait()
    again = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_until(lambda: ("one", "still at work") in history(tmp_path))
    (tmp_path / "go").touch()
    assert again.wait(timeout=60) == 0
    assert (tmp_path / "seen").read_text() == "in\nout\n" * 2


def test_a_line_that_a_kill_cut_off_is_not_read(tmp_path: Path) -> None:
    write_plan(tmp_path, ("one", "true", []), ("two", "true", []))
    assert work(tmp_path, "--only", "one").returncode == 0
    with (tmp_path / "out" / "jobs.jsonl").open("a") as journal:
        journal.write('{"at": "2026')
    assert work(tmp_path).returncode == 0
    assert history(tmp_path)[2:] == [("two", "begun"), ("two", "done")]


@pytest.mark.parametrize("option", ["--at-once", "--tries"])
def test_no_job_at_once_and_no_try_are_refused_and_not_waited_for_forever(tmp_path: Path, option: str) -> None:
    write_plan(tmp_path, ("one", "false", []))
    done = work(tmp_path, option, "0")
    assert (done.returncode, f"argument {option}: invalid count value: '0'" in done.stderr) == (2, True)


def test_a_word_that_a_job_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("[[job]]\nname = 'one'\nrun = 'true'\nafer = ['two']\n")
    assert "unexpected keyword argument 'afer'" in work(tmp_path).stderr


def test_only_the_named_jobs_and_what_they_wait_for(tmp_path: Path) -> None:
    write_plan(tmp_path, ("a", "true", []), ("b", "true", []), ("c", "true", ["a"]), ("d", "true", ["c"]))
    assert work(tmp_path, "--only", "d").returncode == 0
    assert [job for job, what in history(tmp_path) if what == "done"] == ["a", "c", "d"]


def test_named_jobs_begin_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    write_plan(tmp_path, ("a", "true", []), ("b", "true", []), ("c", "true", ["a"]), ("d", "true", []))
    assert work(tmp_path, "--only", "d", "c", "b", "a").returncode == 0
    assert [job for job, what in history(tmp_path) if what == "begun"] == ["d", "a", "c", "b"]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([("a", "true", ["b"]), ("b", "true", [])], "a waits for b, which no earlier job is called"),
        ([("a", "true", []), ("a", "true", [])], "two jobs are called a"),
    ],
)
def test_a_plan_that_cannot_be_worked_is_refused(
    tmp_path: Path, jobs: list[tuple[str, str, list[str]]], said: str
) -> None:
    write_plan(tmp_path, *jobs)
    done = work(tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("plan", ["findings.toml", "larger.toml"])
def test_the_plans_of_the_findings_can_be_worked(plan: str) -> None:
    """Every job of a shipped plan is one that a shell can read."""
    done = subprocess.run(
        [sys.executable, RUNS / "jobs.py", RUNS / plan, "--out", "x", "--only", "nobody"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "no job is called nobody" in done.stderr
    for job in tomllib.loads((RUNS / plan).read_text())["job"]:
        assert subprocess.run(["sh", "-n", "-c", job["run"]], timeout=60).returncode == 0, job["name"]
