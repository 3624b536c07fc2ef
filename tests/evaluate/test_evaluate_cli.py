"""`jade eval` and `jade report` from end to end: a world, its index, a model behind HTTP, a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from title_model import serving_titles
from typer.testing import CliRunner, Result

from jade.cli import evaluate, index, report
from jade.corpus.world import make_world, write_world
from jade.errors import ConfigError, DocumentError, IndexUnusable, JadeError, TraceUnreadable

app = typer.Typer()
for name, verb in (("eval", evaluate), ("report", report), ("index", index)):
    app.command(name)(verb.command)


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with serving_titles() as url:
        yield url


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    for seed in (1, 2):
        write_world(make_world(80, 60, seed), folder / str(seed))
        done = call("index", folder / str(seed) / "pages", "--out", folder / f"index{seed}")
        assert done.exit_code == 0, done.output
    return folder


def evaluate_world(world: Path, out: Path, *options: object, seed: int = 1) -> Result:
    given = ("--benchmark", "world", "--data", world / "1", "--index", world / f"index{seed}", "--out", out)
    return call("eval", *given, *options)


def complaint(result: Result, kind: type[JadeError]) -> str:
    assert isinstance(result.exception, kind), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_who_stops_it_is_told_that_the_same_command_goes_on(
    world: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def be_stopped(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jade.evaluate.run._work", be_stopped)
    done = evaluate_world(world, tmp_path / "run", "--model", model, "--limit", 1)
    assert done.exit_code == 130
    kept = f"jade: stopped; what was written to {tmp_path / 'run'} is kept: the same command goes on with it\n"
    assert done.stderr == kept


def test_a_world_is_evaluated_and_reported(world: Path, model: str, tmp_path: Path) -> None:
    options = ("--method", "oracle,vanilla-rag", "--model", model, "--limit", 5, "--seed", 3, "--concurrency", 2)
    done = evaluate_world(world, tmp_path / "run", *options)
    assert done.exit_code == 0, done.output
    assert "world/vanilla-rag: 5 questions, F1" in done.output
    assert "the backbone was busy" in done.output
    assert json.loads((tmp_path / "run/run.json").read_text())["settings"]["seed"] == 3
    oracle, vanilla = (read(tmp_path / f"run/world/{name}/records.jsonl") for name in ("oracle", "vanilla-rag"))
    assert [record["id"] for record in oracle] == [record["id"] for record in vanilla]
    assert sum(record["scores"]["f1"] for record in oracle) > sum(record["scores"]["f1"] for record in vanilla)
    assert all(record["cost"] | {"prompt_tokens": 7, "completion_tokens": 3} == record["cost"] for record in vanilla)

    again = evaluate_world(world, tmp_path / "run", *options)
    assert again.exit_code == 0, again.output
    assert "busy" not in again.output, "nothing was left to do"

    written = call("report", tmp_path / "run", "--out", tmp_path / "report", "--resamples", 100)
    assert written.exit_code == 0, written.output
    assert str(tmp_path / "report/report.html") in written.output.replace("\n", "")
    assert "| Oracle |" in (tmp_path / "report/report.md").read_text()


def test_paraphrased_prompts_are_summed_up(world: Path, model: str, tmp_path: Path) -> None:
    options = ("--method", "no-retrieval", "--model", model, "--limit", 2, "--prompt-variants", 2)
    done = evaluate_world(world, tmp_path / "run", *options)
    assert done.exit_code == 0, done.output
    assert "no-retrieval under 3 wordings of its prompts: F1 mean 0.0, worst 0.0, spread 0.0" in done.output
    written = call("report", tmp_path / "run", "--out", tmp_path / "report", "--resamples", 100)
    assert written.exit_code == 0, written.output
    table = (tmp_path / "report/report.md").read_text().partition("## Robustness to the prompts")[2]
    assert "| method | benchmark | wordings | shipped | mean | worst | best | spread |" in table
    assert "| No retrieval | World | 3 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 |" in table


def test_the_oracle_needs_no_model(world: Path, tmp_path: Path) -> None:
    done = evaluate_world(world, tmp_path / "run", "--method", "oracle", "--model", tmp_path / "no-such-model")
    assert done.exit_code == 0, done.output


def test_answering_from_memory_needs_no_index(world: Path, model: str, tmp_path: Path) -> None:
    options = ("--benchmark", "world", "--data", world / "1", "--out", tmp_path / "run", "--limit", 3, "--model", model)
    done = call("eval", *options, "--method", "no-retrieval")
    assert done.exit_code == 0, done.output
    assert [record["answer"] for record in read(tmp_path / "run/world/no-retrieval/records.jsonl")] == ["nothing"] * 3
    report = call("report", tmp_path / "run", "--out", tmp_path / "report", "--resamples", 100)
    assert report.exit_code == 0, report.output
    assert ", no index, k 5," in (tmp_path / "report/report.md").read_text()
    other = call("eval", *options[:4], "--out", tmp_path / "other", *options[6:], "--method", "no-retrieval,jade")
    assert complaint(other, ConfigError).startswith("retrieval.index is not set: give an index folder")


def test_bad_input_is_one_clear_line(world: Path, tmp_path: Path) -> None:
    run, oracle = tmp_path / "run", ("--method", "oracle")
    unknown = call("eval", "--benchmark", "hotpot", "--out", run)
    assert complaint(unknown, ConfigError).startswith("unknown benchmark 'hotpot': choose from nq, popqa")
    assert complaint(evaluate_world(world, run, "--method", "react"), ConfigError).startswith("unknown method 'react'")
    assert "no dev split of nq" in complaint(
        call("eval", "--benchmark", "nq", "--data", world, "--split", "dev", "--out", run), DocumentError
    )
    missing = call(
        "eval", "--benchmark", "world", "--data", world / "1", "--index", tmp_path / "none", "--out", run, *oracle
    )
    assert "no such folder" in complaint(missing, IndexUnusable)
    assert complaint(call("report", tmp_path, "--out", run), TraceUnreadable).endswith("it has no run.json")


def test_an_index_of_another_world_is_refused(world: Path, tmp_path: Path) -> None:
    done = evaluate_world(world, tmp_path / "run", "--method", "oracle", seed=2)
    assert "does not fit world" in complaint(done, IndexUnusable)


def test_going_on_with_another_seed_is_refused(world: Path, tmp_path: Path) -> None:
    assert evaluate_world(world, tmp_path / "run", "--method", "oracle", "--limit", 2).exit_code == 0
    done = evaluate_world(world, tmp_path / "run", "--method", "oracle", "--limit", 2, "--seed", 9)
    assert "was run with another seed (0, now 9)" in complaint(done, ConfigError)
