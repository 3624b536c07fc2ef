"""`jade retrieve-server`: an index over HTTP, in Search-R1's protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from jade.cli.options import ConfigFile, Index, Overrides, config_from


def command(
    index: Index = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Which port; 0 takes a free one.")] = 8001,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Serve an index: POST /retrieve {"queries", "topk", "return_scores"}."""
    import uvicorn

    from jade.retrieval.open import open_retriever
    from jade.retrieval.server import make_app

    chosen = config_from(config, settings, index=index).retrieval
    app = make_app(open_retriever(chosen), k=chosen.k, about={"index": chosen.index, "kind": chosen.kind})
    uvicorn.run(app, host=host, port=port, log_level="info")
