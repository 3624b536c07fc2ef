"""`jade retrieve-server`: an index over HTTP, in Search-R1's protocol."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import ConfigFile, Index, Overrides, config_from
from jade.cli.serve import serve_settings

if TYPE_CHECKING:
    from socket import socket

    from jade.config import Config, RetrievalConfig
    from jade.retrieval.base import Retriever


def command(
    index: Index = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Which port; 0 takes a free one.")] = 8001,
    shards: Annotated[
        int, typer.Option(min=0, help="Processes that share the shards of an index (jade index --shard-size).")
    ] = 0,
    shard_urls: Annotated[
        str, typer.Option(help="Servers that each hold a part of the corpus, in its order, by commas.")
    ] = "",
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Serve an index: POST /retrieve {"queries", "topk", "return_scores"}."""
    import asyncio

    from jade.serve.listen import open_socket

    named = serve_settings({"host": host, "port": port})
    chosen = config_from(config, [*named, *(settings or [])], index=index)
    with ExitStack() as stack:
        sock = stack.enter_context(open_socket(chosen.serve))
        retriever = _retriever(chosen.retrieval, shards, list(filter(None, shard_urls.split(","))), stack)
        asyncio.run(_serve(retriever, chosen, sock))


async def _serve(retriever: Retriever, config: Config, sock: socket) -> None:
    from jade.received import without_password
    from jade.retrieval.server import make_app
    from jade.serve.listen import listen

    chosen = config.retrieval
    about = {"index": without_password(chosen.index), "kind": chosen.kind}
    app = make_app(retriever, k=chosen.k, about=about, serve=config.serve)
    try:
        await listen(app, config.serve, _say, sock)
    finally:
        await retriever.close()


def _say(url: str) -> None:
    typer.echo(f"jade: running on {url} (POST /retrieve)", err=True)


def _retriever(chosen: RetrievalConfig, shards: int, urls: list[str], stack: ExitStack) -> Retriever:
    """One index in this process, or a front before several."""
    from jade.errors import ConfigError
    from jade.retrieval.open import open_retriever
    from jade.retrieval.shards_serve import open_remote_shards, shard_servers

    if shards and urls:
        raise ConfigError("--shards starts servers and --shard-urls names some that run: give one of the two")
    if urls:
        return open_remote_shards(urls, chosen)
    if shards:
        return open_remote_shards(stack.enter_context(shard_servers(chosen, shards)), chosen)
    return open_retriever(chosen)
