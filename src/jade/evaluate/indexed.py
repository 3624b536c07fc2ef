"""Is this the index of this benchmark's corpus? An evaluation over another one is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jade.config import Config
from jade.engine.probe import probe_index
from jade.errors import IndexUnusable
from jade.evaluate.methods import Method
from jade.retrieval.base import Retriever
from jade.types import Question


async def check_index(
    questions: Mapping[str, Sequence[Question]], retriever: Retriever, methods: Sequence[Method], config: Config
) -> None:
    """Raise IndexUnusable when of a benchmark's evidence pages none is found. Without titles nothing can be said."""
    if not config.eval.check_index or not any(method.needs_index for method in methods):
        return
    for benchmark, asked in questions.items():
        probe = await probe_index(asked, retriever)
        if not probe.share:
            raise IndexUnusable(
                f"index {config.retrieval.index} does not fit {benchmark}: of {len(probe.titles)} evidence pages "
                f"(the first is {probe.titles[0]!r}) it has none; index the benchmark's corpus, "
                "or allow it with --set eval.check_index=false"
            )
