"""A server with the scripted team, as a process of its own: prints its address, runs until it is told to stop.

Usage: python scripted_server.py DELAY_SECONDS
"""

from __future__ import annotations

import asyncio
import sys

from serve_builders import make_app, make_config, make_crew

from jade.serve.listen import listen

if __name__ == "__main__":
    config = make_config()
    app = make_app(make_crew(delay_seconds=float(sys.argv[1])), config)
    asyncio.run(listen(app, config, lambda url: print(url, flush=True)))
    print("stopped", flush=True)
