"""The server put together: a crew, its desk, what it has answered, and the viewer around them."""

from __future__ import annotations

from starlette.types import ASGIApp

from jade.config import RewardConfig, ServeConfig
from jade.engine.record import append_traces, check_holds_traces
from jade.serve.app import build_app
from jade.serve.desk import Desk
from jade.serve.keys import Keyring
from jade.serve.library import Library
from jade.serve.shelf import Recent
from jade.serve.tally import Tally
from jade.team.crew import Crew
from jade.team.team import Team
from jade.types import Trace


def check_files(config: ServeConfig) -> None:
    """Refuse files that cannot be shown or added to: to be asked before a model is loaded, which may take minutes."""
    Library(config.runs)
    if config.traces and config.traces.is_file():
        check_holds_traces(config.traces)


def answering_app(crew: Crew, config: ServeConfig, keys: Keyring, reward: RewardConfig | None = None) -> ASGIApp:
    """The API over a crew, with the viewer on what it answers and on the runs that the config names."""
    tally, recent = Tally(), Recent(config.keep_traces)
    desk = open_desk(crew, config, tally, recent, reward)
    return build_app(config, keys, tally, Library(config.runs, recent), crew.team, desk=desk)


def viewing_app(team: Team, config: ServeConfig, keys: Keyring) -> ASGIApp:
    """The viewer alone; `team` tells what the roles' prompts were."""
    return build_app(config, keys, Tally(), Library(config.runs), team)


def open_desk(
    crew: Crew,
    config: ServeConfig,
    tally: Tally | None = None,
    recent: Recent | None = None,
    reward: RewardConfig | None = None,
) -> Desk:
    """Where questions are handed in; what is answered is kept and written down as the config says."""

    def keep(trace: Trace) -> None:
        if recent:
            recent.add(trace)
        if config.traces:
            append_traces(config.traces, [trace])

    return Desk(crew, config, tally or Tally(), keep, reward)
