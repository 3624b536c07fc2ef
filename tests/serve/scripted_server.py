"""A server with the scripted team, as a process of its own: prints its address, runs until it is told to stop.

The team plans and then waits; it goes on when anything comes on stdin.
"""

from __future__ import annotations

import asyncio
import sys
import threading

from serve_builders import Held, make_app, make_config, make_crew

from jade.serve.listen import listen


def let_go_when_told(team: Held) -> None:
    sys.stdin.readline()
    team.let_go.set()


if __name__ == "__main__":
    config, team = make_config(), Held(free=1)
    threading.Thread(target=let_go_when_told, args=(team,), daemon=True).start()
    asyncio.run(listen(make_app(make_crew(team), config), config, lambda url: print(url, flush=True)))
    print("stopped", flush=True)
