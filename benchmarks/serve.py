"""What the server bears: many clients at once, clients that leave, and large files of traces.

Load: 200 clients, each asking again as soon as it has its answer, over a scripted model of 20 ms a call (two calls and
a search a question), for a minute. Beside it the same endpoint where a finished trace takes the team's place, once with
the same waiting and once without, so that what the server itself costs is visible. Viewer: 10,000 traces of 20 kB,
over HTTP and, where Chromium and playwright are there, in the page itself.

    python benchmarks/serve.py [--only load leaving viewer] [--clients 200] [--seconds 60] [--traces 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from urllib.request import urlopen

from starlette.types import ASGIApp

from jade.backbone.scripted import ScriptedBackbone
from jade.config import ServeConfig, TeamConfig
from jade.engine.events import Listener
from jade.engine.solve import solve
from jade.serve.app import build_app
from jade.serve.desk import Desk, Request
from jade.serve.keys import Keyring
from jade.serve.library import Library
from jade.serve.listen import listen
from jade.serve.room import answering_app, viewing_app
from jade.serve.tally import Tally
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Passage, Prompt, Question, Trace

PARTS = ("load", "leaving", "viewer")
CALL_SECONDS = 0.02
CALLS = 2
TEXT = "The school in the river town was founded by a person of that name in the year of the flood. " * 7
PAGES = [Passage(str(n), f"Page {n}", f"{TEXT} {n}", f"page{n}.md:0") for n in range(5)]
QUESTION = "Who founded the school in the river town?"
BODY = json.dumps({"model": "jade", "messages": [{"role": "user", "content": QUESTION}]}).encode()


class Shelf:
    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [PAGES[:k] for _ in queries]

    async def close(self) -> None:
        return None


def play(prompt: Prompt) -> str:
    return "<workflow>R,AG</workflow>" if prompt.role == "P" else "<answer>Jane Austen</answer>"


def make_crew(call_seconds: float = CALL_SECONDS) -> Crew:
    return Crew(build_team(TeamConfig()), Cast(ScriptedBackbone(play, call_seconds)), Shelf())


class CannedDesk(Desk):
    """A desk without a team: it waits as long as the team would and hands out a finished trace."""

    canned: Trace
    wait_seconds = 0.0

    async def _in_turn(self, request: Request, listen: Listener) -> Trace:
        async with self._places:
            await asyncio.sleep(self.wait_seconds)
        return replace(self.canned, question=request.question())


async def serve(kind: str, path: str) -> None:
    """The server process: prints its address and runs until it is told to stop."""
    config, crew = ServeConfig(port=0, runs=(Path(path),) if path else ()), make_crew()
    if kind == "viewer":
        app = viewing_app(crew.team, config, Keyring())
    elif kind == "team":
        app = answering_app(crew, config, Keyring())
    else:
        canned = await solve(Question("q", QUESTION), make_crew(0.0))
        app = canned_app(crew, config, canned, CALLS * CALL_SECONDS if kind == "waiting" else 0.0)
    await listen(app, config, lambda url: print(url, flush=True))


def canned_app(crew: Crew, config: ServeConfig, trace: Trace, wait_seconds: float) -> ASGIApp:
    tally = Tally()
    desk = CannedDesk(crew, config, tally)
    desk.canned, desk.wait_seconds = trace, wait_seconds
    return build_app(config, Keyring(), tally, Library(), crew.team, desk=desk)


@contextmanager
def server(kind: str, path: str = "") -> Iterator[tuple[str, int]]:
    call = [sys.executable, __file__, "--serve", kind, "--path", path]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass
class Load:
    """What the clients saw."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def row(self, name: str) -> str:
        ordered = sorted(self.latencies)
        middle, last = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
        errors = sum(self.statuses.values()) - self.statuses[200]
        settled = self.memory[len(self.memory) // 6 :]
        per_request = self.cpu_seconds / len(ordered) * 1000
        return (
            f"| {name} | {len(ordered) / self.seconds:,.0f} | {middle * 1000:.0f} | {last * 1000:.0f} | {errors} "
            f"| {per_request:.2f} | {settled[0]:.0f} → {settled[-1]:.0f} |"
        )


async def client(host: str, port: int, until: float, load: Load) -> None:
    """One keep-alive connection that asks again and again. Plain bytes: the client must not be what is measured."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    reader, writer = await asyncio.open_connection(host, port)
    while time.monotonic() < until:
        started = time.monotonic()
        writer.write(request)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(lines.split("content-length: ")[1].split("\r\n")[0])
        await reader.readexactly(length)
        load.statuses[int(lines.split()[1])] += 1
        load.latencies.append(time.monotonic() - started)
    writer.close()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def watch(pid: int, load: Load) -> None:
    while True:
        load.memory.append(megabytes(pid))
        await asyncio.sleep(1)


async def press(url: str, pid: int, clients: int, seconds: float) -> Load:
    host, port = url.removeprefix("http://").split(":")
    load = Load()
    watching = asyncio.create_task(watch(pid, load))
    cpu, started = cpu_seconds(pid), time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(host, int(port), started + seconds, load))
    load.seconds, load.cpu_seconds = time.monotonic() - started, cpu_seconds(pid) - cpu
    watching.cancel()
    return load


def measure_load(clients: int, seconds: float) -> None:
    print(f"\n{clients} clients for {seconds:g} s, {CALLS} calls of {CALL_SECONDS * 1000:.0f} ms a question\n")
    print("| | requests/s | p50 ms | p99 ms | errors | server CPU ms a request | server memory MB |")
    print("|---|---|---|---|---|---|---|")
    rows = [("the team", "team"), ("no team, same waiting", "waiting"), ("no team, no waiting", "bare")]
    for name, kind in rows:
        with server(kind) as (url, pid):
            print(asyncio.run(press(url, pid, clients, seconds)).row(name), flush=True)


def measure_leaving(num: int = 50) -> None:
    """Clients that hang up in the middle: how soon nothing is worked on any more."""
    with server("team") as (url, _):
        asyncio.run(_leave(url, num))
        started = time.monotonic()
        while _gauge(url, "jade_questions_active") > 0:
            time.sleep(0.005)
        print(f"\n{num} clients hung up in the middle: their work had ended after {time.monotonic() - started:.3f} s")


async def _leave(url: str, num: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(num)]
    for writer in writers:
        writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
    await asyncio.sleep(CALL_SECONDS * 0.5)
    for writer in writers:
        writer.close()


def _gauge(url: str, name: str) -> float:
    text = urlopen(f"{url}/metrics").read().decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--traces", type=int, default=10_000)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--path", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.path))
        return 0
    print(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    parts: dict[str, Callable[[], None]] = {
        "load": lambda: measure_load(options.clients, options.seconds),
        "leaving": measure_leaving,
        "viewer": lambda: import_module("viewer").measure_viewer(options.traces),
    }
    for name in options.only:
        parts[name]()
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
