"""The viewer's data over HTTP, from the run folders that the other verbs write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_builders import NESTED, SIMPLE, make_app, make_config, make_crew, serving
from trace_builders import make_traces, write_evaluation, write_training

from jade.engine.record import append_traces, trace_to_json
from jade.errors import TraceUnreadable
from jade.serve.curves import read_curves
from jade.serve.keys import Keyring
from jade.serve.library import Library
from jade.serve.room import viewing_app


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_evaluation(folder / "bench")
    write_training(folder / "trained")
    append_traces(folder / "asked.jsonl", make_traces())
    (folder / "notes.jsonl").write_text('{"just": "notes"}\n')
    (folder / "notes.txt").write_text("nothing to see")
    return folder


@pytest.fixture(scope="module")
def http(runs: Path) -> Iterator[httpx.Client]:
    app = viewing_app(make_crew().team, make_config(runs=[str(runs)]), Keyring())
    with serving(app) as url, httpx.Client(base_url=f"{url}/v1") as client:
        yield client


def get(http: httpx.Client, path: str, **params: Any) -> Any:
    response = http.get(path, params=params)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_folder_is_read_for_what_it_holds(http: httpx.Client) -> None:
    found = get(http, "/runs")
    assert found["team"] is False
    assert [(run["name"], run["group"], run["kind"]) for run in found["runs"]] == [
        ("asked", found["runs"][0]["group"], "traces"),
        ("jade", "bench", "evaluation"),
        ("untrained", "bench", "evaluation"),
        ("trained", found["runs"][3]["group"], "training"),
    ]


def test_rows_come_in_pages_with_facets_on_the_first(http: httpx.Client) -> None:
    first = get(http, "/runs/jade/rows", limit=3)
    second = get(http, "/runs/jade/rows", offset=3, limit=3)
    assert (first["total"], first["matched"]) == (4, 4)
    assert first["facets"]["dataset"] == [["multi", 2], ["single", 2]]
    assert second["facets"] == {}
    assert [row["question_id"] for row in first["rows"] + second["rows"]] == ["q2", "q3", "q1", "q4"]


def test_filters_and_search_work_over_http(http: httpx.Client) -> None:
    assert [r["question_id"] for r in get(http, "/runs/jade/rows", q="older school")["rows"]] == ["q3"]
    assert [r["question_id"] for r in get(http, "/runs/jade/rows", verdict="wrong")["rows"]] == ["q4"]
    assert get(http, "/runs/untrained/rows", flag="malformed")["matched"] == 4
    assert http.get("/runs/jade/rows", params={"verdict": "perhaps"}).status_code == 422


def test_a_trace_comes_with_prompts_rewards_and_marked_passages(http: httpx.Client) -> None:
    trace = get(http, "/runs/untrained/traces/q1@0")
    steps = {step["role"]: step for step in trace["steps"]}
    assert steps["DS"]["malformed"] == "not of the form <id>…</id>"
    assert steps["DS"]["reward"]["format"] == -1.0
    assert steps["AG"]["reward"]["format"] == 0.0
    assert steps["AG"]["reward"]["cost"] == pytest.approx(0.1), "the prices are those of the run"
    assert steps["R"]["reward"] is None
    assert [passage["chosen"] for passage in steps["R"]["passages"]] == [True, True, True]
    assert steps["P"]["prompt"]["system"].startswith("You plan how a team")
    assert steps["P"]["prompt"]["user"].endswith(f"Question: {SIMPLE}")
    assert "token_ids" not in json.dumps(trace)


def test_a_trace_of_training_shows_the_prices_of_its_iteration(tmp_path: Path) -> None:
    write_training(tmp_path / "trained")
    (tmp_path / "trained" / "config.toml").write_text("[reward]\nalpha = 0.3\nramp = 40\n")
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path / "trained")]), Keyring())
    with serving(app) as url, httpx.Client(base_url=f"{url}/v1") as http:
        rows = get(http, "/runs/trained/rows", limit=50)["rows"]
        for row in rows:
            trace = get(http, f"/runs/trained/traces/{row['key']}")
            price = 0.1 * min(row["rounds"], 3) * (int(row["part"]) - 1) / 40  # iteration 1 pays nothing
            costs = [step["reward"]["cost"] for step in trace["steps"] if step["reward"]]
            assert costs
            assert costs == [pytest.approx(price)] * len(costs)
    assert {row["part"] for row in rows} == {"1", "11"}


def test_without_gold_answers_there_is_no_reward(tmp_path: Path) -> None:
    from jade.types import Question

    append_traces(tmp_path / "t.jsonl", make_traces([Question("q1", NESTED)]))
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path / "t.jsonl")]), Keyring())
    with serving(app) as url, httpx.Client(base_url=f"{url}/v1") as http:
        trace = get(http, "/runs/t/traces/q1@0")
    assert trace["scores"] is None
    assert all(step["reward"] is None for step in trace["steps"])


def test_two_runs_are_compared_question_by_question(http: httpx.Client) -> None:
    compared = get(http, "/compare", before="untrained", after="jade")
    assert compared["summary"]["num"] == 4
    assert compared["summary"]["before"]["rounds"] < compared["summary"]["after"]["rounds"]
    assert sum(compared["summary"]["changes"].values()) == 4
    assert ["R,DS,AG", "QR,R,DS,AG", 2] in compared["summary"]["plans"]
    better = get(http, "/compare", before="untrained", after="jade", change="better")
    assert better["matched"] == compared["summary"]["changes"]["better"]
    assert http.get("/compare", params={"before": "jade", "after": "nobody"}).status_code == 404


def test_sampled_traces_of_a_training_run_are_told_apart_by_iteration(http: httpx.Client) -> None:
    page = get(http, "/runs/trained/rows", part="11")
    assert page["facets"]["part"] == [["1", 4], ["11", 4]]
    assert {row["part"] for row in page["rows"]} == {"11"}


def test_curves_are_read_from_where_one_stopped(http: httpx.Client, runs: Path) -> None:
    first = get(http, "/runs/trained/curves")
    kinds = Counter(row["kind"] for row in first["rows"])
    assert kinds == {"iteration": 12, "guard": 1, "mind": 1, "dev": 1}
    assert get(http, "/runs/trained/curves", after=first["next"])["rows"] == []
    with (runs / "trained" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "iteration", "iteration": 13, "reward": NaN}\n{"kind": "iter')
    added = get(http, "/runs/trained/curves", after=first["next"])
    assert added["rows"] == [{"kind": "iteration", "iteration": 13, "reward": None}]
    assert added["restarted"] is False
    assert http.get("/runs/jade/curves").status_code == 404


def test_a_journal_that_was_cut_back_is_told(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "iteration", "iteration": 1}\nrubbish\n')
    again = read_curves(path, after=10_000)
    assert again["restarted"] is True
    assert [row["iteration"] for row in again["rows"]] == [1]


def test_no_path_leads_out_of_the_library(http: httpx.Client) -> None:
    for path in ("/runs/..%2f..%2fetc/rows", "/runs/jade/traces/..%2f..%2frun.json", "/runs/%2e%2e/rows"):
        assert http.get(path).status_code == 404, path
    for name in ("../bench", "/etc/passwd", "bench/jade", "..", ".", "*", "notes.txt", "jade\x00"):
        compared = http.get("/compare", params={"before": name, "after": "jade"})
        assert compared.status_code == 404, name


@pytest.mark.parametrize(
    "target",
    [
        "/ui/../app.py",
        "/ui/%2e%2e/app.py",
        "/ui/..%2fapp.py",
        "/ui//etc/passwd",
        "/ui/js/..%5c..%5capp.py",
        "/v1/runs/../../ui/../app.py",
    ],
)
def test_the_page_serves_its_own_files_only(http: httpx.Client, target: str) -> None:
    """Sent as it stands: a client would tidy the dots away."""
    with closing(HTTPConnection(http.base_url.host, http.base_url.port)) as raw:
        raw.putrequest("GET", target, skip_host=False)
        raw.endheaders()
        response = raw.getresponse()
        body = response.read()
    assert response.status == 404, body[:200]
    assert b"import" not in body
    assert b"root:" not in body


def test_a_link_in_a_folder_of_runs_is_not_a_way_to_other_files(tmp_path: Path) -> None:
    """What a folder holds is looked at for what it is: a secret is no trace file, wherever a link points."""
    (tmp_path / "secret").write_text("root:x:0:0\n")
    append_traces(tmp_path / "runs" / "asked.jsonl", make_traces())
    (tmp_path / "runs" / "link.jsonl").symlink_to(tmp_path / "secret")
    assert [run.name for run in Library([tmp_path / "runs"]).runs()] == ["asked"]


def broken_traces() -> list[str]:
    """Lines that are JSON and nearly traces, with fields of the wrong type or value."""
    sound = trace_to_json(make_traces()[1])
    wrong: list[dict[str, Any]] = [
        {"question": {**sound["question"], "answers": [1, 2]}},
        {"question": {**sound["question"], "answers": ["Lune"], "text": None}},
        {"steps": [{**sound["steps"][0], "generation": {"text": 7, "logprobs": ["x"]}}]},
        {"steps": [{**sound["steps"][0], "applied": {"kind": "Selection", "indices": [99]}}]},
        {"steps": [{**sound["steps"][0], "observation": {"question": "x", "passages": [10**6]}}]},
        {"nodes": [{"id": 3}]},
        {"usage": {"seconds": float("nan")}},
        {"usage": "nothing"},
        {"effort": {"alpha": float("inf"), "beta": "x"}},
        {"citations": [{"passage": -99}]},
        {"answer": {"deep": []}},
        {"schema": 99},
    ]
    return [json.dumps({**sound, **change, "id": f"t{number}"}) for number, change in enumerate(wrong)]


def test_traces_of_a_foreign_hand_are_shown_or_refused_never_a_crash(tmp_path: Path) -> None:
    lines = broken_traces()
    (tmp_path / "odd.jsonl").write_text("\n".join(lines) + "\n")
    app = viewing_app(make_crew().team, make_config(runs=[str(tmp_path / "odd.jsonl")]), Keyring())
    with serving(app) as url, httpx.Client(base_url=f"{url}/v1") as http:
        rows = get(http, "/runs/odd/rows", sort="seconds")["rows"]
        statuses = {row["key"]: http.get(f"/runs/odd/traces/{row['key']}").status_code for row in rows}
        for params in ({"q": "lune 99"}, {"sort": "score"}, {"flag": "error"}, {"verdict": "right"}):
            assert http.get("/runs/odd/rows", params=params).status_code == 200, params
        assert http.get("/compare", params={"before": "odd", "after": "odd"}).status_code == 200
    assert len(rows) == len(lines)
    assert set(statuses.values()) <= {200, 422}, statuses
    assert 200 in statuses.values()


def test_a_run_that_begins_later_appears_by_itself(tmp_path: Path) -> None:
    write_training(tmp_path / "one")
    library = Library([tmp_path])
    assert [run.title for run in library.runs()] == ["one"]
    append_traces(tmp_path / "asked.jsonl", make_traces())
    asked = library.run("asked")
    assert asked is not None
    assert len(asked.shelf.look()) == 4
    assert sorted(run.title for run in library.runs()) == ["asked", "one"]


def test_runs_of_the_same_title_have_names_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        append_traces(tmp_path / name / "traces.jsonl", make_traces())
    library = Library([tmp_path / name / "traces.jsonl" for name in ("a", "b", "c")])
    assert [run.name for run in library.runs()] == ["traces", "b-traces", "c-traces"]


def test_a_folder_that_may_not_be_read_hides_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "anothers").mkdir()
    append_traces(tmp_path / "mine" / "traces.jsonl", make_traces())
    is_file = Path.is_file

    def is_file_if_allowed(path: Path) -> bool:  # root, whom tests often run as, is refused nothing
        if path.parent.name == "anothers":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", is_file_if_allowed)
    assert [run.group for run in Library([tmp_path]).runs()] == ["mine"]


def test_a_path_with_nothing_to_show_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match="no traces"):
        Library([tmp_path])
    with pytest.raises(TraceUnreadable, match="no traces"):
        Library([tmp_path / "absent"])
    questions, asked = tmp_path / "questions.jsonl", tmp_path / "asked.jsonl"
    questions.write_text('{"id": "1", "question": "Who?", "golden_answers": ["Ada"]}\n')
    for named in (questions, tmp_path):
        with pytest.raises(TraceUnreadable, match=f"{named}: no traces"):
            Library([named])
    asked.touch()
    assert [run.name for run in Library([asked]).runs()] == ["asked"], "what is still empty may hold traces later"


def test_what_the_server_answers_is_shown_live_and_written_down(tmp_path: Path) -> None:
    config = make_config(traces=tmp_path / "out" / "traces.jsonl")
    with serving(make_app(config=config)) as url, httpx.Client(base_url=f"{url}/v1") as http:
        reply = http.post("/ask", json={"question": NESTED}).json()
        rows = get(http, "/runs/live/rows")["rows"]
        shown = get(http, f"/runs/live/traces/{reply['trace_id']}")
    assert [row["key"] for row in rows] == [reply["trace_id"]] == [shown["id"]]
    assert json.loads((tmp_path / "out" / "traces.jsonl").read_text())["id"] == reply["trace_id"]
