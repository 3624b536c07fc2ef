"""`jade retrieve-server`: an index over HTTP, in Search-R1's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import ConfigFile, Index, Overrides, config_from
from jade.cli.serve import serve_settings

if TYPE_CHECKING:
    from jade.config import Config


def command(
    index: Index = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Which port; 0 takes a free one.")] = 8001,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Serve an index: POST /retrieve {"queries", "topk", "return_scores"}."""
    import asyncio

    named = serve_settings({"host": host, "port": port})
    asyncio.run(_serve(config_from(config, [*named, *(settings or [])], index=index)))


async def _serve(config: Config) -> None:
    from jade.retrieval.open import open_retriever
    from jade.retrieval.server import make_app
    from jade.serve.listen import listen

    chosen = config.retrieval
    retriever = open_retriever(chosen)
    app = make_app(retriever, k=chosen.k, about={"index": chosen.index, "kind": chosen.kind})
    try:
        await listen(app, config.serve, lambda url: typer.echo(f"jade: running on {url} (POST /retrieve)", err=True))
    finally:
        await retriever.close()
