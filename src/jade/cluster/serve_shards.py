"""Shards as a Ray Serve application: a deployment for each group of neighbouring shards, and a front that merges.

    serve run jade.cluster.serve_shards:application index=/data/wikipedia groups=4 replicas=2

The front speaks `POST /retrieve` as `jade retrieve-server` does, so `retrieval.index` takes its URL. Every node that
runs a group needs the index at the same path; only the groups that it runs are mapped there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from jade.config import RetrievalConfig
from jade.retrieval.open import open_shards
from jade.retrieval.server import make_app
from jade.retrieval.shards import ShardedRetriever
from jade.retrieval.shards_serve import share_out
from jade.types import Passage


def application(settings: Mapping[str, Any]) -> Any:
    """`index` is a folder of shards; `groups` of them, `replicas` of each, `cpus` of a replica, `k` passages."""
    index, k = str(settings["index"]), int(settings.get("k", 5))
    groups = share_out(index, int(settings.get("groups", 1)))
    deployed: Any = serve.deployment(
        num_replicas=int(settings.get("replicas", 1)),
        ray_actor_options={"num_cpus": float(settings.get("cpus", 1))},
    )
    parts = [
        deployed(Group).options(name=f"shards-{group.start}-{group.stop - 1}").bind(index, list(group))
        for group in groups
    ]
    front: Any = serve.deployment()
    return front(Front).bind(index, k, *parts)


class Group:
    """Some shards, in one process."""

    def __init__(self, index: str, numbers: Sequence[int]) -> None:
        self._retriever = open_shards(RetrievalConfig(index=index), numbers)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return await self._retriever.search(queries, k)


class Front:
    """Asks every group and merges; requests are checked and answered by the retrieval server's own application."""

    def __init__(self, index: str, k: int, *groups: Any) -> None:
        app = make_app(ShardedRetriever([Asked(group) for group in groups]), k=k, about={"index": index})
        self._inside = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shards")

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        answer = await self._inside.request(
            request.method, request.url.path, content=body, headers={"content-type": "application/json"}
        )
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))


class Asked:
    """A group's handle as a retriever."""

    def __init__(self, group: Any) -> None:
        self._group = group

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        found: list[list[Passage]] = await self._group.search.remote(list(queries), k)
        return found

    async def close(self) -> None:
        return None
