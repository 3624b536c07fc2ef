"""How the team is served over HTTP."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field

from jade.config.section import Section


class ServeConfig(Section):
    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs keys."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    keys_file: Path | None = None
    """A file of API keys, one a line, each with a name before it if you like (`alice 8f3a…`)."""
    keys_env: str = "JADE_API_KEYS"
    """The environment variable that holds further keys, separated by commas."""
    requests_per_minute: int = Field(60, ge=0)
    """Questions one key may ask in a minute; 0 is no limit. Without keys nobody is told apart or limited."""
    max_body_bytes: int = Field(1_000_000, ge=1024)
    """Larger requests are refused (413)."""
    max_question_chars: int = Field(4000, ge=1)
    """Longer questions are refused (413)."""
    max_context_turns: int = Field(8, ge=0)
    """Earlier turns of a conversation that are kept, the latest ones."""
    concurrency: int = Field(64, ge=1)
    """Questions worked at once."""
    queue: int = Field(256, ge=0)
    """Questions that may wait for their turn; further ones are refused (503)."""
    answer_seconds: float = Field(120.0, gt=0.0)
    """Time from the request to the answer, waiting included, after which a question is given up (504)."""
    read_seconds: float = Field(10.0, gt=0.0)
    """Time a client may take to send its request (408)."""
    drain_seconds: float = Field(130.0, ge=0.0)
    """Time that running questions are given when the server is told to stop."""
    cors_origins: tuple[str, ...] = ()
    """Web pages of other origins that may call the API; empty: none."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests on a loopback address may carry beside its own; keeps foreign web pages out."""
    traces: Path | None = None
    """A file that every answered question's trace is added to."""
    keep_traces: int = Field(256, ge=1)
    """Latest traces that are kept in memory and shown in the viewer."""
    runs: tuple[Path, ...] = ()
    """Run folders and trace files that the viewer shows beside."""

    def is_meant(self, called: str) -> bool:
        """Whether a request whose `Host` is this is meant for us. A web page elsewhere can make its own name point at
        this machine, and would then read as ours; its requests carry that name."""
        if not is_loopback(self.host):
            return True
        name = called.rsplit("]", 1)[0].lstrip("[")
        name = name.split(":", 1)[0] if name.count(":") == 1 else name
        return is_loopback(name) or name in self.allowed_hosts


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
