"""A retriever from the config: an index folder searched by words, by meaning or by both, or a server's URL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jade.config import RetrievalConfig
from jade.errors import ConfigError
from jade.retrieval.base import Retriever
from jade.retrieval.batching import BatchedRetriever, Searcher
from jade.retrieval.hybrid import HybridRetriever
from jade.retrieval.index import BM25, DENSE, Index, open_index
from jade.retrieval.shards import ShardedRetriever, is_sharded, read_shards

KINDS = {"bm25": (BM25,), "dense": (DENSE,), "hybrid": (BM25, DENSE)}
"""The parts of an index that each kind of search asks."""


def open_retriever(cfg: RetrievalConfig) -> Retriever:
    """Open what `cfg.index` names; IndexUnusable, WeightsMissing or ConfigError says in one line why it cannot be."""
    if not cfg.index:
        raise ConfigError("retrieval.index is not set: give an index folder (jade index) or a retrieval server's URL")
    if "://" in cfg.index:
        from jade.retrieval.remote import RemoteRetriever

        return RemoteRetriever(cfg.index, timeout_seconds=cfg.timeout_seconds, retries=cfg.retries)
    if is_sharded(Path(cfg.index)):
        return open_shards(cfg)
    index = open_index(Path(cfg.index))
    parts = tuple(index.manifest.parts) if cfg.kind == "auto" else KINDS[cfg.kind]
    retrievers = [BatchedRetriever(_searcher(index, part, cfg), inline=cfg.inline) for part in parts]
    return retrievers[0] if len(retrievers) == 1 else HybridRetriever(retrievers)


def open_shards(cfg: RetrievalConfig, numbers: Iterable[int] | None = None) -> Retriever:
    """The named shards of a folder, or all, as one retriever in this process."""
    folder = Path(cfg.index)
    names = read_shards(folder).names()
    if cfg.kind not in ("auto", "bm25"):
        raise ConfigError(f"retrieval.kind: {cfg.kind}; shards are searched by bm25 only")
    chosen = names if numbers is None else [names[number] for number in numbers]
    parts = [cfg.model_copy(update={"index": str(folder / name)}) for name in chosen]
    return ShardedRetriever([open_retriever(part) for part in parts])


def _searcher(index: Index, part: str, cfg: RetrievalConfig) -> Searcher:
    settings = index.part(part)
    if part == BM25:
        from jade.retrieval.bm25 import open_bm25

        return open_bm25(index, settings, cfg.threads)
    from jade.retrieval.dense import open_dense

    return open_dense(index, settings, cfg.device)
