"""A crew: what a config names is opened, used, and closed again whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config, load_config
from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.team.crew import Cast, open_crew
from jade.types import Effort, Prompt, Question, Sampling
from loopback import Handler, listening


class Server(Handler):
    """A model that answers everything alike, and a library of one passage, on the loopback."""

    def do_POST(self) -> None:
        body = json.loads(self.body())
        if self.path.endswith("/retrieve"):
            passage = {"id": "1", "contents": '"Emma"\nA novel by Jane Austen.'}
            self.reply({"result": [[{"document": passage, "score": 1.0}] for _ in body["queries"]]})
        else:
            text = {"own": "<answer>by its own model</answer>"}.get(body["model"], "<answer>Jane Austen</answer>")
            self.reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

    def reply(self, answer: dict[str, object]) -> None:
        self.answer(200, json.dumps(answer).encode())


@pytest.fixture
def address() -> Iterator[str]:
    with listening(Server) as address:
        yield address


def config_at(address: str, *overrides: str) -> Config:
    fixed = (f"backbone.model={address}/v1#shared", f"retrieval.index={address}", 'team.workflows=["R,AG"]')
    return load_config(overrides=[*fixed, *overrides])


async def test_a_config_opens_a_crew_that_answers(address: str) -> None:
    async with open_crew(config_at(address, "retrieval.k=1", "budget.rounds=3", "sampling.temperature=0.5")) as crew:
        trace = await solve(Question("q", "Who wrote Emma?"), crew)
        assert (crew.k, crew.budget.rounds, crew.sampling.temperature) == (1, 3, 0.5)
    assert (trace.answer, trace.supported, trace.error) == ("Jane Austen", True, None)


async def test_a_role_may_have_a_model_of_its_own(address: str) -> None:
    async with open_crew(config_at(address, f"roles.AG.model={address}/v1#own")) as crew:
        trace = await solve(Question("q", "Who wrote Emma?"), crew)
    assert trace.answer == "by its own model"


async def test_what_was_opened_is_closed_when_the_work_raises(address: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_crew(config_at(address)) as crew:
            raise ZeroDivisionError
    trace = await solve(Question("q", "Who wrote Emma?"), crew)
    assert trace.answer == ""
    assert [step.error is None for step in trace.steps] == [False, False, False]


async def test_a_role_that_is_not_in_the_team_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"roles\.XX: no such role; there are P, QDS, QDP, QR, DS, AG, AS"):
        async with open_crew(config_at(address, "roles.XX.model=m")):
            pass


async def test_a_planner_for_prices_stands_back_where_another_plans(address: str, tmp_path: Path) -> None:
    """It came with the weights; nobody named it."""
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\n"
        "def register(team):\n"
        "    team.add(replace(team.members.pop('P'), code='PL'), 'Plan.')\n"
    )
    own = (f"roles.P.model={address}/v1#own", "roles.P.only_priced=true", f'team.extensions=["{tmp_path / "mine.py"}"]')
    async with open_crew(config_at(address, *own)) as crew:
        trace = await solve(Question("q", "Who wrote Emma?"), crew, effort=Effort(0.1, 0.1))
    assert (trace.answer, trace.error) == ("Jane Austen", None)


async def test_a_crew_without_an_index_says_what_to_give(address: str) -> None:
    with pytest.raises(ConfigError, match=r"retrieval\.index is not set: give an index folder"):
        async with open_crew(config_at(address, "retrieval.index=''")):
            pass


class Closing(ScriptedBackbone):
    """A backbone that counts how often it was closed, and may fail at it."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(lambda prompt: "")
        self.num_closed = 0
        self.error = error

    async def close(self) -> None:
        self.num_closed += 1
        if self.error:
            raise self.error


async def test_a_cast_closes_every_backbone_once_whatever_the_others_do() -> None:
    shared, own, failing = Closing(), Closing(), Closing(OSError("stuck"))
    cast = Cast(shared, {"P": own, "AG": failing, "DS": shared, "QR": own})
    with pytest.raises(OSError, match="stuck"):
        await cast.close()
    assert [backbone.num_closed for backbone in (shared, own, failing)] == [1, 1, 1]


async def test_a_cast_gives_each_role_its_own_backbone_or_the_shared_one() -> None:
    shared, own = Closing(), ScriptedBackbone(lambda prompt: "mine")
    cast = Cast(shared, {"P": own})
    assert cast.of("P") is own
    assert cast.of("AG") is shared
    assert (await cast.of("P").generate(Prompt("P", "", ""), Sampling())).text == "mine"
