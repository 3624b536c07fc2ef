"""JADE: a team of language-model agents that answers questions over your documents and learns as a team.

    import jade

    jade.index("papers", out="index")
    with jade.open_team("index") as team:
        trace = team.ask("Who funded the 2019 survey?")
    print(trace.answer)

Everything here is loaded when it is first used, so that `import jade` costs nothing. See docs/python.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jade.api.asking import OpenTeam, open_team
    from jade.api.documents import index
    from jade.api.measuring import measure, read_records, report
    from jade.api.settings import load_config
    from jade.api.traces import append_traces, read_traces, show
    from jade.api.training import TrainedRun, export, read_metrics, train, warm_start
    from jade.api.worlds import world
    from jade.config import Config
    from jade.errors import JadeError
    from jade.evaluate.benchmarks import load_questions
    from jade.reward.metrics import exact_match, f1
    from jade.types import Citation, Node, Passage, Prompt, Question, Step, Trace, Usage

__all__ = [
    "Citation",
    "Config",
    "JadeError",
    "Node",
    "OpenTeam",
    "Passage",
    "Prompt",
    "Question",
    "Step",
    "Trace",
    "TrainedRun",
    "Usage",
    "append_traces",
    "exact_match",
    "export",
    "f1",
    "index",
    "load_config",
    "load_questions",
    "measure",
    "open_team",
    "read_metrics",
    "read_records",
    "read_traces",
    "report",
    "show",
    "train",
    "warm_start",
    "world",
]

_HOMES = {
    "jade.api.asking": ("OpenTeam", "open_team"),
    "jade.api.documents": ("index",),
    "jade.api.measuring": ("measure", "read_records", "report"),
    "jade.api.settings": ("load_config",),
    "jade.api.traces": ("append_traces", "read_traces", "show"),
    "jade.api.training": ("TrainedRun", "export", "read_metrics", "train", "warm_start"),
    "jade.api.worlds": ("world",),
    "jade.config": ("Config",),
    "jade.errors": ("JadeError",),
    "jade.evaluate.benchmarks": ("load_questions",),
    "jade.reward.metrics": ("exact_match", "f1"),
    "jade.types": ("Citation", "Node", "Passage", "Prompt", "Question", "Step", "Trace", "Usage"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'jade' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
