"""`jade demo`: the main job from nothing, in seconds with a scripted model."""

from __future__ import annotations

from pathlib import Path

from answering_server import Call, Server, serving
from cli_runs import jade

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


def test_the_demo_tells_the_planner_what_to_spend(server: Server) -> None:
    server.script = oracle
    assert jade("demo", "--model", server.url, "--effort", "low").status == 0
    assert all("Prices: turn 0.20, search 0.20" in call.user for call in server.calls if call.role == "P")


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
