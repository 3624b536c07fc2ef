"""Every row of the published table that is trained: its roles learn by the same loop, its method runs the result."""

from __future__ import annotations

from pathlib import Path

import pytest
from learn_runs import make_config, make_crew, make_run, small_world

from jade.config import Config
from jade.engine.record import read_traces
from jade.evaluate.methods import METHODS, configure
from jade.learn.monitor.journal import read_journal
from jade.team.crew import Crew

TRAINED = [method for method in METHODS.values() if method.train_roles]


def config_of(row: str, tiny_model: Path) -> Config:
    learn = {"train_roles": METHODS[row].train_roles, "iterations": 2, "traces_every": 1}
    return configure(METHODS[row], make_config(tiny_model, {"learn": learn, "budget": {"rounds": 3, "calls": 6}}))


def roles_at_work(folder: Path) -> set[str]:
    return {step.role for path in folder.rglob("traces*/*") for trace in read_traces(path) for step in trace.steps}


@pytest.mark.parametrize("row", [method.name for method in TRAINED])
async def test_a_row_takes_its_updates_and_is_measured_by_its_method(
    tiny_model: Path, tmp_path: Path, row: str
) -> None:
    config = config_of(row, tiny_model)
    run = make_run(config, tmp_path)
    start = {name: weight.clone() for name, weight in run.learner.policy.policy_parameters()}
    await run.train()
    assert len(list(read_journal(tmp_path, "iteration"))) == 2
    assert roles_at_work(tmp_path) & set(METHODS[row].train_roles)
    assert any(not start[name].equal(weight) for name, weight in run.learner.policy.policy_parameters())

    assert isinstance(run.crew, Crew)
    trace = await METHODS[row].open_solver(config)(small_world().questions[0], run.crew, 0)
    assert trace.error is None
    assert make_crew(config, run.crew.cast.shared).team.members.keys() >= {step.role for step in trace.steps}
