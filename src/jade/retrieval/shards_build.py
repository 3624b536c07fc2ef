"""Index a corpus in shards, with the memory that one shard takes.

First every shard's passages and words are written down, and words are counted over the whole corpus; then each shard
gets its scores, with the counts of all. The scores are those that bm25s gives to one index of the whole.

D = passages of a shard, W = its words, one after the other, N = pairs of a word and a passage that has it, V = words.
"""

from __future__ import annotations

import json
import math
import shutil
from array import array
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jade.errors import ConfigError, DocumentError
from jade.retrieval.bm25 import K1, ROWS, SCORES, SETTINGS, STARTS, VOCABULARY, B
from jade.retrieval.index import BM25
from jade.retrieval.manifest import describe
from jade.retrieval.publish import publish
from jade.retrieval.shards import LIST, ShardList, is_sharded, shard_name
from jade.retrieval.store import PassageWriter
from jade.retrieval.terms import Vocabulary, weighted
from jade.types import Passage

WORK = ".unfinished-shard"
TOKENS, LENGTHS = "tokens.npy", "lengths.npy"


class Pairs(NamedTuple):
    """Every word of every passage once, by word and then by passage, with how often it stands there."""

    terms_N: NDArray[np.int64]
    rows_N: NDArray[np.int64]
    counts_N: NDArray[np.int64]


class Census:
    """What is counted over all shards: words, in how many passages each stands, and how long passages are."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.ids: dict[str, int] = {}
        self.num_passages = 0
        self.num_words = 0
        self.frequency_V = np.zeros(0, np.int64)

    def add(self, tokens_W: NDArray[np.int32], lengths_D: NDArray[np.int64]) -> None:
        self.num_passages += len(lengths_D)
        self.num_words += len(tokens_W)
        found_V = np.bincount(count_pairs(tokens_W, lengths_D).terms_N)
        more = max(0, len(found_V) - len(self.frequency_V))
        self.frequency_V = np.pad(self.frequency_V, (0, more))
        self.frequency_V[: len(found_V)] += found_V

    def rarity(self, terms: NDArray[np.int64]) -> NDArray[np.float32]:
        """Lucene's idf, rounded as bm25s rounds it."""
        total, frequencies = self.num_passages, self.frequency_V[terms].tolist()
        return np.array([math.log(1 + (total - df + 0.5) / (df + 0.5)) for df in frequencies], np.float32)


def build_shards(passages: Iterable[Passage], out: Path, size: int) -> ShardList:
    """Index passages in shards of `size`. Shards that are there already are replaced when all is done."""
    if size < 1:
        raise ConfigError(f"--shard-size {size}: a shard holds at least one passage")
    others = sorted(path.name for path in out.iterdir()) if out.exists() and not is_sharded(out) else []
    if others:
        # The last, since hidden ones come first; of an index in one piece it is its manifest.
        raise ConfigError(f"--out {out} holds other files ({others[-1]}); choose an empty or a new folder")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: shards are made beside their place; give a folder by its name")
    partial, older = (out.with_name(f".{out.name}.{state}") for state in ("partial", "older"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    census = take_census(passages, partial, size)
    terms = list(census.vocabulary.known())
    folders = sorted(partial.iterdir())
    for folder in folders:
        finish_shard(folder, census, terms)
    shards = ShardList(census.num_passages, [number * size for number in range(len(folders))], len(terms))
    (partial / LIST).write_text(json.dumps(asdict(shards), indent=1) + "\n", encoding="utf-8")
    # Out of the way, and removed behind that: removing takes long, and a kill would leave neither index whole.
    shutil.rmtree(older, ignore_errors=True)
    if out.exists():
        out.replace(older)
    partial.replace(out)
    shutil.rmtree(older, ignore_errors=True)
    return shards


def take_census(passages: Iterable[Passage], folder: Path, size: int) -> Census:
    """Write every shard's passages and words down, and count."""
    census = Census()
    stream = iter(passages)
    for number, first in enumerate(stream):
        write_passages(chain((first,), islice(stream, size - 1)), folder / shard_name(number), census)
    if not census.num_passages:
        raise DocumentError("nothing to index: no passages were found")
    return census


def write_passages(passages: Iterable[Passage], folder: Path, census: Census) -> None:
    """One shard's passages, and the numbers of their words."""
    work = folder / WORK
    work.mkdir(parents=True)
    tokens, lengths = array("i"), array("q")
    with PassageWriter(work, census.ids) as writer:
        for passage in passages:
            writer.add(passage)
            numbers = census.vocabulary.numbers(weighted(passage.title, passage.text))
            tokens.extend(numbers)
            lengths.append(len(numbers))
    tokens_W, lengths_D = np.array(tokens, np.int32), np.array(lengths, np.int64)
    np.save(folder / TOKENS, tokens_W)
    np.save(folder / LENGTHS, lengths_D)
    census.add(tokens_W, lengths_D)


def finish_shard(folder: Path, census: Census, terms: list[str]) -> None:
    """Scores for what was written down; then the shard is an index folder like any other."""
    tokens_W, lengths_D = np.load(folder / TOKENS), np.load(folder / LENGTHS)
    work = folder / WORK
    (work / BM25).mkdir()
    write_scores(work / BM25, count_pairs(tokens_W, lengths_D), lengths_D, census, terms)
    counts = {"files": 0, "documents": 0, "passages": len(lengths_D), "renamed": 0}
    publish(folder, work, describe(work, {}, counts, {BM25: SETTINGS}))
    (folder / TOKENS).unlink()
    (folder / LENGTHS).unlink()


def write_scores(folder: Path, pairs: Pairs, lengths_D: NDArray[np.int64], census: Census, terms: list[str]) -> None:
    """The lists of the words that this shard has, numbered for itself: its vocabulary is no larger than it must be."""
    own_V, num_pairs_V = np.unique(pairs.terms_N, return_counts=True)
    mean = census.num_words / census.num_passages
    norm_D = K1 * ((1 - B) + B * lengths_D / max(mean, 1e-9))
    rarity_N = np.repeat(census.rarity(own_V), num_pairs_V).astype(np.float64)
    scores_N = rarity_N * (pairs.counts_N / (norm_D[pairs.rows_N] + pairs.counts_N))
    starts_V, rows_N = np.concatenate(([0], np.cumsum(num_pairs_V))), pairs.rows_N
    known = {terms[term]: number for number, term in enumerate(own_V.tolist())}
    if not known:  # passages of stop words are still a shard; no query has the empty term
        known, rows_N, scores_N = {"": 0}, np.arange(len(lengths_D)), np.zeros(len(lengths_D))
        starts_V = np.array([0, len(lengths_D)])
    np.save(folder / SCORES, scores_N.astype(np.float32))
    np.save(folder / ROWS, rows_N.astype(np.int32))
    np.save(folder / STARTS, starts_V.astype(np.int64))
    (folder / VOCABULARY).write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")


def count_pairs(tokens_W: NDArray[np.int32], lengths_D: NDArray[np.int64]) -> Pairs:
    """Words and passages as one number each, sorted: the same pair stands together and is counted."""
    rows_W = np.repeat(np.arange(len(lengths_D)), lengths_D)
    # In 64 bits: words times passages is more than 32 can hold.
    keys_N, counts_N = np.unique(tokens_W * np.int64(len(lengths_D)) + rows_W, return_counts=True)
    terms_N, rows_N = np.divmod(keys_N, len(lengths_D))
    return Pairs(terms_N, rows_N, counts_N)
