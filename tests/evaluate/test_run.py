"""Running: every question is a record, in order, once, whatever happens on the way."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scripted_evaluation
from evaluate_builders import LIBRARY, ONE_HOP, TWO_HOPS, Shelf, make_crew, means_of, write_questions

from jade.config import Config
from jade.engine.hold import locked
from jade.engine.record import read_traces
from jade.errors import BackboneFailed, ConfigError, IndexUnusable, TraceUnreadable
from jade.evaluate.indexed import check_index
from jade.evaluate.methods import find_method
from jade.evaluate.run import Request, Session, Tally, evaluate, settings_of
from jade.evaluate.store import Cell, CellFiles, find_cells, open_run, read_records, read_run, read_timings
from jade.types import Passage, Prompt, Question
from small_disk import most_bytes_in_a_file

SAYS = {"P": "<workflow>R,AG</workflow>", "AG": "<answer>Jane Austen</answer>", "AS": "<answer>none</answer>"}


def say(prompt: Prompt) -> str:
    return SAYS[prompt.role]


def many(question: Question, count: int) -> list[Question]:
    return [replace(question, id=f"{question.id}{number:03}") for number in range(count)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_questions(tmp_path / "data/nq.test.jsonl", many(ONE_HOP, 12))
    write_questions(tmp_path / "data/musique.test.jsonl", many(TWO_HOPS, 8))
    return tmp_path / "data"


def request(data: Path, **fields: Any) -> Request:
    given: dict[str, Any] = {
        "benchmarks": ("nq",),
        "methods": ("vanilla-rag",),
        "out": data.parent / "run",
        "data": str(data),
    }
    return Request(**given | fields)


async def run(asked: Request, script: Callable[[Prompt], str] = say, **settings: Any) -> Session:
    return await evaluate(asked, Config.model_validate(settings), means=means_of(script))


def records_of(out: Path, cell: str = "nq/vanilla-rag") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / cell / "records.jsonl").read_text().splitlines()]


async def test_every_question_of_every_cell_becomes_a_record_in_order(data: Path) -> None:
    asked = request(data, benchmarks=("nq", "musique"), methods=("jade", "vanilla-rag", "oracle"))
    session = await run(asked)
    assert session.questions == 3 * (12 + 8)
    assert find_cells(asked.out) == [Cell(b, m) for b in ("musique", "nq") for m in ("jade", "oracle", "vanilla-rag")]
    for cell, tally in session.tallies.items():
        records = list(read_records(asked.out / str(cell) / "records.jsonl"))
        traces = list(read_traces(asked.out / str(cell) / "traces.jsonl"))
        prefix = "one" if cell.benchmark == "nq" else "two"
        assert [record.id for record in records] == [f"{prefix}{number:03}" for number in range(tally.total)]
        assert [trace.id for trace in traces] == [record.trace for record in records]
        assert [timing.id for timing in read_timings(asked.out / str(cell) / "timings.jsonl")] == [
            r.id for r in records
        ]
    assert session.tallies[Cell("nq", "vanilla-rag")].mean_f1 == 1.0
    assert session.tallies[Cell("musique", "vanilla-rag")].mean_f1 == 0.0
    assert session.tallies[Cell("musique", "oracle")].mean_f1 == 1.0


async def test_records_hold_nothing_that_depends_on_the_clock(data: Path) -> None:
    asked = request(data)
    await run(asked)
    assert "seconds" not in (asked.out / "nq/vanilla-rag/records.jsonl").read_text()
    assert all(timing.ended >= timing.began for timing in read_timings(asked.out / "nq/vanilla-rag/timings.jsonl"))


async def test_traces_are_kept_without_token_ids(data: Path) -> None:
    asked = request(data)
    await run(asked)
    (step,) = [s for s in next(read_traces(asked.out / "nq/vanilla-rag/traces.jsonl")).steps if s.generation]
    assert step.generation is not None
    assert step.generation.text == SAYS["AG"]
    assert step.generation.token_ids == ()


async def test_two_benchmarks_of_one_name_are_refused_and_none_is_passed_over(data: Path) -> None:
    own = [str(write_questions(data / place / "nq.jsonl", many(ONE_HOP, 1))) for place in "ab"]
    for names in (own, ["nq", own[0]]):
        complaint = f"benchmarks {names[0]} and {names[1]} are both called nq: rename one of the files"
        with pytest.raises(ConfigError) as caught:
            await run(request(data, benchmarks=tuple(names)))
        assert str(caught.value) == complaint
    assert (await run(request(data, benchmarks=(own[0], own[0])))).questions == 1


async def test_a_question_that_fails_is_counted_and_scores_zero(data: Path) -> None:
    calls = iter(range(1000))

    def moody(prompt: Prompt) -> str:
        if next(calls) < 8:
            raise RuntimeError("out of sorts")
        return SAYS[prompt.role]

    session = await run(request(data), moody, eval={"concurrency": 1})
    assert session.tallies[Cell("nq", "vanilla-rag")] == Tally(done=12, total=12, failed=4, f1=8.0)
    errors = [record["error"] for record in records_of(data.parent / "run")]
    assert errors == ["RuntimeError: out of sorts"] * 4 + [None] * 8


async def test_a_server_that_is_down_stops_the_run_and_its_questions_are_asked_again(data: Path) -> None:
    calls = iter(range(1000))

    def dies(prompt: Prompt) -> str:
        if next(calls) >= 3:
            raise ConnectionError("gone")
        return SAYS[prompt.role]

    settings = {"eval": {"concurrency": 1, "give_up_after": 4}}
    with pytest.raises(BackboneFailed, match="nq/vanilla-rag: 4 questions in a row failed, the last with: Conn"):
        await run(request(data), dies, **settings)
    assert len(records_of(data.parent / "run")) == 3
    session = await run(request(data), say, **settings)
    assert session.questions == 9
    assert session.tallies[Cell("nq", "vanilla-rag")].failed == 0


async def test_a_finished_run_started_again_does_nothing_and_opens_nothing(data: Path) -> None:
    asked = request(data)
    await run(asked)

    def refuse(config: Config, methods: Sequence[object]) -> Any:
        raise AssertionError("nothing is left to do")

    session = await evaluate(asked, Config(), means=refuse)
    assert session.questions == 0
    assert session.tallies[Cell("nq", "vanilla-rag")].mean_f1 == 1.0


async def test_methods_and_benchmarks_may_be_added_to_a_run(data: Path) -> None:
    await run(request(data))
    session = await run(request(data, benchmarks=("nq", "musique"), methods=("vanilla-rag", "no-retrieval")))
    assert session.questions == 12 + 2 * 8


@pytest.mark.parametrize(
    ("fields", "settings", "difference"),
    [
        ({}, {"seed": 1}, r"seed \(0, now 1\)"),
        ({}, {"backbone": {"model": "other"}}, r"backbone\.model \('jade-135m', now 'other'\)"),
        ({}, {"retrieval": {"k": 9}}, r"retrieval\.k \(5, now 9\)"),
        ({"limit": 3}, {}, r"limit \(None, now 3\)"),
        ({}, {"reward": {"effort": "low"}}, r"prices \(None, now \{'alpha': 0\.2, 'beta': 0\.2\}\)"),
    ],
)
async def test_a_run_does_not_go_on_with_other_settings(
    data: Path, fields: dict[str, Any], settings: dict[str, Any], difference: str
) -> None:
    await run(request(data))
    with pytest.raises(ConfigError, match=f"was run with another {difference}: choose another --out"):
        await run(request(data, **fields), **settings)


async def test_a_run_does_not_go_on_with_another_version_of_a_role_of_ones_own(data: Path) -> None:
    own = data.parent / "my_roles.py"
    own.write_text("def register(team):\n    pass\n")
    team = {"extensions": [str(own)]}
    await run(request(data), team=team)
    assert (await run(request(data), team=team)).questions == 0
    own.write_text("def register(team):\n    return None\n")
    with pytest.raises(ConfigError, match=r"was run with another extensions\..*my_roles\.py"):
        await run(request(data), team=team)


async def test_settings_that_change_only_the_pace_may_change(data: Path) -> None:
    await run(request(data))
    await run(
        request(data),
        backbone={"max_batch": 2, "threads": 1},
        eval={"concurrency": 3},
        retrieval={"timeout_seconds": 9},
    )


def test_a_planner_for_prices_is_the_same_wherever_it_is_installed(tmp_path: Path) -> None:
    """And who has none has a run as it was before there were any."""

    def settings(place: str, weights: str) -> dict[str, Any]:
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "adapter_model.safetensors").write_text(weights)
        own = {"model": "jade-135m", "adapter": tmp_path / place, "only_priced": True}
        return settings_of(Request(("nq",), ("jade",), tmp_path), Config.model_validate({"roles": {"P": own}}))

    assert settings("here", "one") == settings("there", "one") != settings("third", "other")
    plain = settings_of(Request(("nq",), ("jade",), tmp_path), Config())
    assert "only_priced" not in json.dumps(plain)


async def test_a_run_does_not_go_on_with_other_questions(data: Path) -> None:
    await run(request(data))
    write_questions(data / "nq.test.jsonl", many(replace(ONE_HOP, id="new"), 12))
    with pytest.raises(ConfigError, match="is about 'one000', but question 1 is now 'new000': the data has changed"):
        await run(request(data))


@pytest.mark.parametrize("count", [3, 20])
async def test_a_run_that_is_refused_other_questions_is_as_finished_as_before(data: Path, count: int) -> None:
    await run(request(data))
    write_questions(data / "nq.test.jsonl", many(replace(ONE_HOP, id="new"), count))
    with pytest.raises(ConfigError):
        await run(request(data))
    assert CellFiles(data.parent / "run", Cell("nq", "vanilla-rag")).num_asked() == 12


@pytest.mark.parametrize("name", ["traces", "timings"])
async def test_a_run_that_was_moved_without_its_traces_is_not_thrown_away(data: Path, name: str) -> None:
    await run(request(data))
    files = CellFiles(data.parent / "run", Cell("nq", "vanilla-rag"))
    path, records = getattr(files, name), files.records.read_bytes()
    path.unlink()
    with pytest.raises(ConfigError, match=rf"{name}\.jsonl is gone, and all 12 questions of .* put it back, or choose"):
        await run(request(data))
    assert files.records.read_bytes() == records


async def test_a_limit_takes_the_same_questions_for_every_method(data: Path) -> None:
    asked = request(data, methods=("vanilla-rag", "no-retrieval"), limit=5)
    await run(asked)
    ids = [[r["id"] for r in records_of(asked.out, f"nq/{name}")] for name in asked.methods]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 5


async def test_the_prompts_wording_varies_and_nothing_else_does(data: Path) -> None:
    systems = set()

    def listen(prompt: Prompt) -> str:
        systems.add((prompt.role, prompt.system))
        return SAYS[prompt.role]

    session = await run(request(data, variants=2), listen)
    assert [str(cell) for cell in session.tallies] == ["nq/vanilla-rag", "nq/vanilla-rag@1", "nq/vanilla-rag@2"]
    assert len(systems) == 3
    with pytest.raises(ConfigError, match="prompt variant 5: there are 4 paraphrases"):
        await run(request(data, variants=9))


@pytest.mark.parametrize("file", ["records.jsonl", "traces.jsonl", "timings.jsonl"])
async def test_whatever_byte_a_file_was_cut_at_the_records_end_the_same(data: Path, file: str) -> None:
    asked = request(data)
    await run(asked)
    folder = asked.out / "nq/vanilla-rag"
    whole = (folder / "records.jsonl").read_bytes()
    size = (folder / file).stat().st_size
    for place in random.Random(file).sample(range(size), 8):
        with (folder / file).open("ab") as cut:
            cut.truncate(place)
        session = await run(asked)
        assert session.questions > 0
        assert (folder / "records.jsonl").read_bytes() == whole
        assert sum(1 for _ in read_traces(folder / "traces.jsonl")) == 12


async def test_a_disk_that_is_full_for_a_while_costs_nothing_that_is_not_asked_again(data: Path) -> None:
    """A line that did not fit was cut short in silence, and the next one, for which there was room again, joined it."""
    asked = request(data)
    await run(asked)
    folder = asked.out / "nq/vanilla-rag"
    wanted = {path.name: path.read_bytes() for path in folder.glob("r*.jsonl")}
    lines = (folder / "traces.jsonl").read_bytes().splitlines(keepends=True)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    with most_bytes_in_a_file(len(b"".join(lines[:5])) + 10), pytest.raises(OSError, match="File too large"):
        await run(asked)
    assert len(records_of(asked.out)) == 5
    await run(asked)
    assert {path.name: path.read_bytes() for path in folder.glob("r*.jsonl")} == wanted
    assert [trace.question.id for trace in read_traces(folder / "traces.jsonl")] == [
        record["id"] for record in records_of(asked.out)
    ]


@pytest.mark.slow
def test_killed_at_random_points_and_started_again_the_records_are_byte_identical(tmp_path: Path) -> None:
    write_questions(tmp_path / "data/nq.test.jsonl", many(ONE_HOP, 40))
    write_questions(tmp_path / "data/musique.test.jsonl", many(TWO_HOPS, 40))
    data, whole, killed = (str(tmp_path / name) for name in ("data", "whole", "killed"))
    scripted_evaluation.main(data, whole)
    for last_call in random.Random(3).sample(range(40, 120), 4):
        command = [sys.executable, scripted_evaluation.__file__, data, killed, str(last_call)]
        assert subprocess.run(command).returncode == -signal.SIGKILL
    scripted_evaluation.main(data, killed)
    expected = {p.relative_to(whole): p.read_bytes() for p in Path(whole).glob("*/*/records.jsonl")}
    assert len(expected) == 6
    assert {p.relative_to(killed): p.read_bytes() for p in Path(killed).glob("*/*/records.jsonl")} == expected
    sessions = {timing.session for p in Path(killed).glob("*/*/timings.jsonl") for timing in read_timings(p)}
    assert len(sessions) > 1, "no kill hit the run in the middle"


async def test_two_runs_do_not_write_to_one_folder(data: Path) -> None:
    with locked(data.parent / "run"), pytest.raises(ConfigError, match="is being written by another run"):
        await run(request(data))


def test_a_system_without_such_locks_may_write_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match=r"is not the folder of a run: it has no run\.json"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(TraceUnreadable, match="cannot be read"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(TraceUnreadable, match="is of schema 99"):
        read_run(tmp_path)


def test_what_a_run_was_asked_for_is_kept(tmp_path: Path) -> None:
    open_run(tmp_path, {"seed": 1, "pair": (1, 2)}, {"versions": {"python": "3"}})
    open_run(tmp_path, {"seed": 1, "pair": (1, 2)}, {"versions": {"python": "4"}})
    assert read_run(tmp_path)["versions"] == {"python": "3"}


async def check(questions: Sequence[Question], shelf: Shelf, *methods: str, **settings: Any) -> None:
    config = Config.model_validate({"eval": settings, "retrieval": {"index": "some/index"}})
    rows = [find_method(name) for name in methods or ("jade",)]
    await check_index({"nq": questions}, make_crew(say, retriever=shelf).retriever, rows, config)


async def test_an_index_of_another_corpus_is_refused_before_any_work() -> None:
    other = Shelf([Passage("1", "Emma of Normandy", "Emma, who was a queen.")])
    with pytest.raises(IndexUnusable, match="index some/index does not fit nq: of 1 evidence pages") as caught:
        await check([ONE_HOP], other)
    assert "\n" not in str(caught.value)
    await check([ONE_HOP], other, check_index=False)
    await check([ONE_HOP], other, "no-retrieval")


async def test_an_index_that_shares_no_word_with_the_benchmark_is_refused_too() -> None:
    with pytest.raises(IndexUnusable, match="index some/index does not fit nq"):
        await check([ONE_HOP], Shelf([]))


async def test_an_index_that_has_some_evidence_or_no_titles_is_accepted() -> None:
    await check([ONE_HOP, TWO_HOPS], Shelf(LIBRARY[:1]))
    await check([replace(ONE_HOP, metadata={})], Shelf([]))
    await check([ONE_HOP], Shelf([Passage("1", "", "Emma is a novel.")]))
