"""`jade demo`: the main job from nothing, in seconds with a scripted model; `jade ask` with the real embedded one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from answering_server import ONE_HOP, Call, Server, serving
from cli_runs import jade

from jade.backbone.weights import SHIPPED, TRAINED, default_cache
from jade.config import BackboneConfig
from jade.engine.record import read_traces


def oracle(call: Call) -> str:
    """Plans by the look of the question, and answers with a name that stands in the first document."""
    question = call.question
    plans = {"Which of": "QDP", "How many": "QDP", "Who is older": "QDP"}
    if call.role == "P":
        return f"<workflow>{next((p for s, p in plans.items() if question.startswith(s)), 'R,AG')}</workflow>"
    if call.role == "QDP":
        return "<q1>How old is it?</q1><q2>How large is it?</q2>"
    first = call.user.partition("(")[2].partition(")")[0]
    return f"<answer>{first or 'many'}</answer>"


def test_the_demo_makes_a_world_indexes_it_and_asks_three_questions(here: Path) -> None:
    with serving(oracle) as server:
        done = jade("demo", "--model", server.url)
        again = jade("demo", "--model", server.url)
    assert (done.status, again.status) == (0, 0)
    commands = [line for line in done.out.splitlines() if line.startswith("$ ")]
    assert [command.split()[1:3] for command in commands] == [
        ["jade", "world"], ["jade", "index"], ["jade", "ask"], ["jade", "ask"], ["jade", "ask"], ["jade", "trace"],
    ]  # fmt: skip
    assert [line for line in done.out.splitlines() if line.startswith("# ")][2:5] == [
        "# one hop", "# serial hops", "# parallel parts",
    ]  # fmt: skip
    assert done.out.count("Answer: ") == done.out.count("Gold answer: ") == 3
    assert done.out.count("[1] ") >= 3
    traces = list(read_traces(here / "out/demo/traces.jsonl"))
    assert [trace.question.metadata["kind"] for trace in traces] == ["single", "serial", "parallel"]
    assert jade("trace", "show", "out/demo/traces.jsonl").out.count("Answer: ") == 3


def test_another_seed_and_place_give_another_country(server: Server) -> None:
    server.script = oracle
    first, second = (jade("demo", "--model", server.url, "--seed", seed, "--out", f"d{seed}") for seed in "12")
    countries = [done.out.splitlines()[2] for done in (first, second)]
    assert countries[0] != countries[1]
    assert all("a country that nobody has read about" in line for line in countries)
    assert Path("d1/world/pages").is_dir()
    assert Path("d2/traces.jsonl").is_file()


def test_a_demo_whose_model_fails_ends_with_a_status(server: Server) -> None:
    done = jade("demo", "--model", "no-such-model")
    assert done.status == 2
    assert done.err.splitlines()[-1].startswith("jade: model 'no-such-model' is no shipped name")


def test_a_place_that_holds_something_else_is_left_alone(here: Path) -> None:
    (here / "mine/world").mkdir(parents=True)
    (here / "mine/world/letters.txt").write_text("dear diary")
    done = jade("demo", "--out", "mine", "--model", "http://127.0.0.1:9/v1")
    assert done.status == 2
    assert (here / "mine/world/letters.txt").read_text() == "dear diary"


def cached(name: str) -> None:
    """Skip where using a model would mean fetching it."""
    if not any((default_cache() / "weights").glob(f"{name}-*")):
        pytest.skip(f"no {name} in {default_cache()}; `jade ask --model {name}` fetches it")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHIPPED, *TRAINED])
def test_an_embedded_model_works_over_an_index(name: str, index: Path) -> None:
    cached(name)
    settings = ["--set", 'team.workflows=["R,AG"]', "--set", "retrieval.k=1", "--set", "backbone.threads=1"]
    done = jade("ask", ONE_HOP, "--index", index, "--model", name, "--json", *settings)
    answer = json.loads(done.out)
    assert done.status == 0
    assert answer["answer"]
    assert [one["passage"]["title"] for one in answer["citations"]] == ["mill"]
    (written,) = (step["generation"] for step in answer["trace"]["steps"] if step["role"] == "AG")
    assert len(written["token_ids"]) == len(written["logprobs"]) == answer["usage"]["completion_tokens"] > 0


@pytest.mark.slow
def test_without_a_name_the_trained_team_plans_finds_and_cites(index: Path) -> None:
    cached(BackboneConfig().model)
    done = jade("ask", ONE_HOP, "--index", index, "--set", "backbone.threads=1")
    assert done.status == 0
    assert "malformed" not in done.out
    assert "Answer: Ada Lenn" in done.out
    assert "[1] ✓ 0: mill (mill.txt:chars 0-69)" in done.out
