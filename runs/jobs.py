#!/usr/bin/env python3
"""Many runs on one machine: the jobs of a plan, several at a time, each with a log of its own.

A plan is a TOML file of jobs. A job is a name and a shell command. It may wait for others (`after`), and may be one
that the GPU does not feel (`light = true`) and that does not count against `--at-once`. Jobs begin in the file's order,
or in that of `--only`, as soon as what they wait for is done. One that fails stops nobody but those who wait for it,
and is tried again at the end, `--tries` times in all: a GPU that was full may have room by then.

    runs/jobs.py runs/findings.toml --out out/findings --at-once 5
    runs/jobs.py runs/findings.toml --out out/findings --only start select-0    # and what these wait for

Killed and started again, it leaves out what was done and waits for what is still at work; the commands are to go on
where they were. OUT/jobs.jsonl says what began and ended when, OUT/log/NAME.txt what a job said. Several runs share a
GPU well under CUDA's MPS (`nvidia-cuda-mps-control -d`); never end one of its clients by a signal, for all others may
end with it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LOOK_EVERY = 0.5
"""Seconds between two looks at who has ended."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    run: str
    after: tuple[str, ...] = ()
    light: bool = False


def read_plan(path: Path) -> list[Job]:
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))["job"]
        jobs = [Job(**row | {"after": tuple(row.get("after", ()))}) for row in rows]
    except (OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        sys.exit(f"{path}: no plan: {error!r}; a plan has [[job]] tables with a name and a run")
    check_order(jobs, path)
    return jobs


def check_order(jobs: Sequence[Job], path: Path) -> None:
    """A job waits for earlier ones only, so that nobody waits forever."""
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen:
            sys.exit(f"{path}: two jobs are called {job.name}")
        if unknown := set(job.after) - seen:
            sys.exit(f"{path}: {job.name} waits for {', '.join(sorted(unknown))}, which no earlier job is called")
        seen.add(job.name)


def with_needs(jobs: Sequence[Job], names: Sequence[str], path: Path) -> list[Job]:
    """The named jobs in the order in which they are named, each behind what it waits for."""
    by_name = {job.name: job for job in jobs}
    if unknown := set(names) - by_name.keys():
        sys.exit(f"{path}: no job is called {', '.join(sorted(unknown))}")
    found: dict[str, Job] = {}

    def add(name: str) -> None:
        for need in by_name[name].after:
            add(need)
        found[name] = by_name[name]

    for name in names:
        add(name)
    return list(found.values())


class Queue:
    def __init__(self, jobs: Sequence[Job], out: Path, at_once: int, tries: int) -> None:
        self._out = out
        self._at_once = at_once
        self._tries_left = {job.name: tries for job in jobs}
        self._running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = {}
        self._journal = out / "jobs.jsonl"
        (out / "log").mkdir(parents=True, exist_ok=True)
        self._done = self._done_before()
        self._failed: set[str] = set()
        self._waiting = [job for job in jobs if job.name not in self._done]
        for job in filter(self._is_left, self._waiting):
            self._note(job, "still at work")

    def work(self) -> int:
        """Until nothing is left; gives how many jobs failed or never began."""
        while self._waiting or self._running:
            self._begin_what_can()
            time.sleep(LOOK_EVERY)
            self._look_who_ended()
        return len(self._failed)

    def _begin_what_can(self) -> None:
        for job in list(self._waiting):
            if lost := self._failed & set(job.after):
                self._waiting.remove(job)
                self._failed.add(job.name)
                self._note(job, "left out", waits_for=sorted(lost))
            elif set(job.after) <= self._done and (job.light or self._num_heavy() < self._at_once):
                self._begin(job)

    def _begin(self, job: Job) -> None:
        with self._log(job).open("ab") as log:
            if not is_free(log):  # only of a job whose list was killed, and not it
                return
            process = subprocess.Popen(["sh", "-c", job.run], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._waiting.remove(job)
        self._running[job.name] = job, process, time.monotonic()
        self._note(job, "begun")

    def _num_heavy(self) -> int:
        left = [job for job in self._waiting if self._is_left(job)]
        return sum(not job.light for job in [*left, *(job for job, _, _ in self._running.values())])

    def _is_left(self, job: Job) -> bool:
        """Whether it still works from before this list was killed and started again."""
        if not self._log(job).exists():
            return False
        with self._log(job).open("rb") as log:
            return not is_free(log)

    def _log(self, job: Job) -> Path:
        return self._out / "log" / f"{job.name}.txt"

    def _look_who_ended(self) -> None:
        for name, (job, process, began) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            how = "done" if process.returncode == 0 else "failed"
            self._tries_left[name] -= 1
            if how == "done":
                self._done.add(name)
            elif self._tries_left[name]:
                self._waiting.append(job)
            else:
                self._failed.add(name)
            self._note(job, how, code=process.returncode, seconds=round(time.monotonic() - began, 1))

    def _note(self, job: Job, what: str, **more: object) -> None:
        row = {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "job": job.name, "what": what, **more}
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(*row.values(), f"({len(self._running)} running, {len(self._waiting)} waiting)", flush=True)

    def _done_before(self) -> set[str]:
        if not self._journal.exists():
            return set()
        lines = self._journal.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # killed while it wrote
            lines.pop()
            self._journal.write_text("".join(lines), encoding="utf-8")
        return {row["job"] for row in map(json.loads, lines) if row["what"] == "done"}


def is_free(log: BinaryIO) -> bool:
    """Take a job's log. A job holds the one that it writes to, until it and all that it began have ended."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def count(text: str) -> int:
    """A number of which none would mean that nothing ever ends."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="for the journal and the logs")
    parser.add_argument("--at-once", type=count, default=1, help="jobs that share the GPU")
    parser.add_argument("--tries", type=count, default=2, help="how often a job that fails is begun")
    parser.add_argument("--only", nargs="+", default=[], help="these jobs in this order, and what they wait for")
    options = parser.parse_args()
    jobs = read_plan(options.plan)
    if options.only:
        jobs = with_needs(jobs, options.only, options.plan)
    sys.exit(1 if Queue(jobs, options.out, options.at_once, options.tries).work() else 0)


if __name__ == "__main__":
    main()
