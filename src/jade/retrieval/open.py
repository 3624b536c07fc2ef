"""A retriever from the config: an index folder searched by words, by meaning or by both, or a server's URL."""

from __future__ import annotations

from pathlib import Path

from jade.config import RetrievalConfig
from jade.errors import ConfigError
from jade.retrieval.base import Retriever
from jade.retrieval.batching import BatchedRetriever, Searcher
from jade.retrieval.hybrid import HybridRetriever
from jade.retrieval.index import BM25, DENSE, Index, open_index

KINDS = {"bm25": (BM25,), "dense": (DENSE,), "hybrid": (BM25, DENSE)}
"""The parts of an index that each kind of search asks."""


def open_retriever(cfg: RetrievalConfig) -> Retriever:
    """Open what `cfg.index` names; IndexUnusable, WeightsMissing or ConfigError says in one line why it cannot be."""
    if not cfg.index:
        raise ConfigError("retrieval.index is not set: give an index folder (jade index) or a retrieval server's URL")
    if "://" in cfg.index:
        from jade.retrieval.remote import RemoteRetriever

        return RemoteRetriever(cfg.index, timeout_seconds=cfg.timeout_seconds, retries=cfg.retries)
    index = open_index(Path(cfg.index))
    parts = tuple(index.manifest.parts) if cfg.kind == "auto" else KINDS[cfg.kind]
    retrievers = [BatchedRetriever(_searcher(index, part, cfg), inline=cfg.inline) for part in parts]
    return retrievers[0] if len(retrievers) == 1 else HybridRetriever(retrievers)


def _searcher(index: Index, part: str, cfg: RetrievalConfig) -> Searcher:
    settings = index.part(part)
    if part == BM25:
        from jade.retrieval.bm25 import open_bm25

        return open_bm25(index, settings, cfg.threads)
    from jade.retrieval.dense import open_dense

    return open_dense(index, settings, cfg.device)
