"""Listen until told to stop; then take nothing new, finish what is running, and go."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from jade.config import ServeConfig
from jade.errors import ConfigError

BACKLOG = 2048
"""Connections that may wait to be accepted."""


class Server(uvicorn.Server):
    """uvicorn, without its way of dying by the signal that asked it to stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Finish what is running; asked again, leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def make_server(app: ASGIApp, config: ServeConfig) -> Server:
    return Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_level="warning",
            use_colors=False,  # it would ask stdout, which a supervisor may have closed
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(config.drain_seconds),
        )
    )


def open_socket(config: ServeConfig) -> socket.socket:
    """A listening socket: who comes before `listen` waits. Named as TCP: only then does asyncio send small answers at
    once, not 40 ms later."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((config.host, config.port))
        sock.listen(BACKLOG)
        return sock
    except OSError as error:
        sock.close()
        reason = error.strerror or error
        raise ConfigError(f"cannot listen on {config.host}:{config.port}: {reason}; choose another --port") from None


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def listen(
    app: ASGIApp, config: ServeConfig, on_ready: Callable[[str], None], sock: socket.socket | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` hears the address. What takes long to open is opened after the socket,
    so that an address which is taken is told at once."""
    server = make_server(app, config)
    sock = sock or open_socket(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    on_ready(url_of(sock))
    await server.serve(sockets=[sock])
