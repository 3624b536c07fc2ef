"""The Ray Serve application of a corpus in shards."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

# Its proxy is given 5 s to be there, and a busy machine takes longer.
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "600"
PATIENCE_SECONDS = 600
MISSING = "Ray Serve is not installed: pip install 'jade-team[ray]'"
serve = pytest.importorskip("ray.serve", reason=MISSING, exc_type=ImportError)
pytestmark = pytest.mark.filterwarnings("ignore")

import ray  # noqa: E402

from jade.cluster.serve_shards import application  # noqa: E402
from jade.config import RetrievalConfig  # noqa: E402
from jade.retrieval.open import open_retriever  # noqa: E402
from jade.retrieval.shards_build import build_shards  # noqa: E402
from jade.types import Passage  # noqa: E402

TEXTS = ["a town on the river Len", "a mill north of the town", "the river rises near the mill", "a state on the coast"]
QUERIES = ["river mill", "town", "coast of a state", "nothing"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "shards"
    build_shards((Passage(str(number), "", text, "t") for number, text in enumerate(TEXTS)), folder, 1)
    return folder


@pytest.fixture(scope="module")
def url(index: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(application({"index": str(index), "groups": "2"}))
        yield f"http://127.0.0.1:{port}"
        serve.shutdown()
    finally:
        ray.shutdown()


def test_groups_of_shards_behind_ray_serve_answer_as_one_index(url: str, index: Path) -> None:
    body = {"queries": QUERIES, "topk": 3, "return_scores": True}
    answer = httpx.post(f"{url}/retrieve", json=body, timeout=PATIENCE_SECONDS).json()["result"]
    found = [[(item["document"]["id"], item["score"]) for item in one] for one in answer]
    here = asyncio.run(open_retriever(RetrievalConfig(index=str(index), inline=True)).search(QUERIES, 3))
    assert found == [[(passage.id, passage.score) for passage in one] for one in here]


def test_a_bad_request_is_refused_as_the_server_refuses_it(url: str) -> None:
    answer = httpx.post(f"{url}/retrieve", json={"queries": "no list"}, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 422
    assert "queries" in answer.json()["error"]
    assert httpx.get(f"{url}/health", timeout=PATIENCE_SECONDS).json()["status"] == "ok"
