"""The verbs of learning, one after the other, as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from learn_runs import make_config
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from jade.api.documents import index_documents
from jade.cli.main import app
from jade.config import dump_config
from jade.corpus.world import make_world, write_world
from jade.engine.hold import locked
from jade.errors import ConfigError
from jade.learn.checkpoint import Checkpoints
from jade.learn.monitor.journal import read_journal
from jade.learn.train import Run
from jade.learn.warmstart.fit import Fit

CHECKER = Path(__file__).parents[2] / "examples" / "fact_checker.py"


@pytest.fixture(scope="module")
def settings(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cli")
    write_world(make_world(50, 20, 0), folder / "world")
    index_documents([folder / "world" / "pages"], folder / "index")
    train, dev = (str(folder / "world" / f"questions.{split}.jsonl") for split in ("train", "dev"))
    return {
        "retrieval": {"index": str(folder / "index"), "inline": True, "k": 1},
        "warmstart": {"questions": [train], "held_out": [dev], "epochs": 1, "roles": ["P", "AG"], "per_role": 8},
        "learn": {
            "questions": [train],
            "held_out": [dev],
            "iterations": 2,
            "policy": {"adapt": "lora", "lora_rank": 2},
        },
    }


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)


def succeed(*arguments: object) -> Result:
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def write_config(path: Path, tiny_model: Path, settings: dict[str, Any]) -> Path:
    path.write_text(dump_config(make_config(tiny_model, settings)))
    return path


def test_from_gold_data_to_an_exported_policy(tiny_model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    warm = write_config(tmp_path / "warm.toml", tiny_model, settings)
    succeed("warmstart", warm, "--examples-only")
    assert (tmp_path / "warm" / "examples.jsonl.gz").is_file()
    succeed("warmstart", warm, "--resume")
    adapter = tmp_path / "warm" / "adapter"
    assert (adapter / "adapter_model.safetensors").is_file()

    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    succeed("train", run, "--set", f"backbone.adapter='{adapter}'", "--set", "learn.iterations=1")
    result = succeed("train", run, "--set", f"backbone.adapter='{adapter}'", "--resume")
    assert "2 iterations done" in result.output
    assert [row["iteration"] for row in read_journal(tmp_path / "run", "iteration")] == [1, 2]

    assert "workflows.svg" in succeed("plot", tmp_path / "run").output
    done = succeed("export", tmp_path / "run", "--out", tmp_path / "merged", "--merge", "--dtype", "bfloat16")
    assert (tmp_path / "merged" / "model.safetensors").is_file()
    assert done.stderr == ""


def test_a_warm_start_that_teaches_nobody_is_refused_and_roles_without_examples_are_named(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    """A policy that was fitted to nothing was handed over as if it had been taught."""
    warm = write_config(tmp_path / "warm.toml", tiny_model, settings)
    own = ("--set", f"team.extensions=['{CHECKER}']", "--set")
    refused = invoke("warmstart", warm, "--examples-only", *own, "warmstart.roles=['FC']")
    assert refused.exit_code != 0
    assert "warmstart.roles: these questions teach nothing to FC" in str(refused.exception)
    taught = invoke("warmstart", warm, *own, "warmstart.roles=['AG', 'FC']")
    assert taught.exit_code == 0
    assert "; none of FC" in taught.output


@pytest.mark.parametrize("verb", [("train", "--minutes", "0.0001"), ("warmstart", "--examples-only")])
def test_an_index_of_other_documents_is_said(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nNothing of that world.")
    index_documents([tmp_path / "notes.md"], tmp_path / "index")
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    wrong = ("--out", tmp_path / "other", "--set", f"retrieval.index='{tmp_path}/index'")
    assert f"retrieval.index: {tmp_path}/index has 0 of " in succeed(verb[0], run, *verb[1:], *wrong).stderr
    assert "evidence pages" not in succeed(verb[0], run, *verb[1:], "--out", tmp_path / "fit").stderr


def test_an_export_says_what_of_the_team_must_come_with_it(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    plans = "team.workflows=['R,AG']"
    trained = succeed("train", run, "--minutes", "0.0001", "--set", plans, "--set", "learn.train_roles=['AG']")
    assert "not trained, though of the team: AS" in trained.stderr
    done = succeed("export", tmp_path / "run", "--out", tmp_path / "team")
    assert done.stdout == f"{tmp_path / 'team'}\n"
    assert "give the same team.workflows with it" in done.stderr


@pytest.mark.parametrize("resume", [(), ("--resume",)])
@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("warmstart.held_out=[]", "warmstart.held_out"),
        ("warmstart.roles=['P']", "warmstart.roles"),
        ("retrieval.k=2", "retrieval.k"),
    ],
)
def test_examples_of_another_course_are_not_taken_for_this_one(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, resume: tuple[str, ...], override: str, field: str
) -> None:
    """They may hold what is now kept for measuring."""
    warm = write_config(tmp_path / "warm.toml", tiny_model, settings)
    succeed("warmstart", warm, "--examples-only")
    kept = (tmp_path / "warm" / "config.toml").read_text()
    result = invoke("warmstart", warm, *resume, "--set", override)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"{field}: differs from the examples in ")
    assert "\n" not in str(result.exception)
    assert (tmp_path / "warm" / "config.toml").read_text() == kept
    assert not (tmp_path / "warm" / "adapter").exists()


def test_how_examples_are_fitted_may_change_before_the_fit_begins(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    warm = write_config(tmp_path / "warm.toml", tiny_model, settings)
    succeed("warmstart", warm, "--examples-only")
    succeed("warmstart", warm, "--set", "warmstart.learning_rate=1e-3", "--set", "warmstart.role_examples.P=4")
    assert "learning_rate = 0.001" in (tmp_path / "warm" / "config.toml").read_text()


def test_a_fit_that_goes_on_is_exported_again_and_one_that_does_not_is_not(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    warm = write_config(tmp_path / "warm.toml", tiny_model, settings)
    adapter = tmp_path / "warm" / "adapter" / "adapter_model.safetensors"
    succeed("warmstart", warm)
    first, written = adapter.read_bytes(), adapter.stat().st_mtime_ns
    succeed("warmstart", warm, "--resume")
    assert adapter.stat().st_mtime_ns == written
    succeed("warmstart", warm, "--resume", "--set", "warmstart.epochs=4")
    assert adapter.read_bytes() != first
    newest = Checkpoints(tmp_path / "warm" / "checkpoints").newest()
    assert newest is not None
    fitted, exported = load_file(newest / "policy.safetensors"), load_file(adapter)
    assert sum(float(weight.abs().sum()) for weight in exported.values()) == pytest.approx(
        sum(float(weight.abs().sum()) for weight in fitted.values())
    )


def test_a_run_that_is_there_is_not_begun_again(tiny_model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    succeed("train", run, "--minutes", "0.0001")
    result = invoke("train", run)
    assert isinstance(result.exception, ConfigError)
    assert "--resume" in str(result.exception)


def test_going_on_with_a_warm_start_that_is_not_there_is_said(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    given = ("warmstart", write_config(tmp_path / "warm.toml", tiny_model, settings), "--examples-only", "--resume")
    said = f"there is no run in {tmp_path / 'warm'} to go on with: it begins"
    assert said in succeed(*given).stderr.splitlines()
    assert said not in succeed(*given).stderr.splitlines()


def test_what_is_left_out_for_overlap_is_said_only_where_something_is(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    train = Path(settings["warmstart"]["questions"][0])
    (tmp_path / "kept.jsonl").write_text(train.read_text().splitlines()[0] + "\n")
    given = ("warmstart", write_config(tmp_path / "warm.toml", tiny_model, settings), "--examples-only")
    assert "left out" not in succeed(*given).stderr
    others = ("--out", tmp_path / "other", "--set", f"warmstart.held_out=['{tmp_path}/kept.jsonl']")
    assert "training questions left out for overlap: " in succeed(*given, *others).stderr


@pytest.mark.parametrize(("verb", "works"), [("train", Run), ("warmstart", Fit)])
def test_who_stops_it_is_told_what_is_kept_and_how_to_go_on(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, works: type
) -> None:
    def be_stopped(self: object, minutes: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(works, "train", be_stopped)
    result = invoke(verb, write_config(tmp_path / "run.toml", tiny_model, settings))
    assert result.exit_code == 130
    line = f"jade: stopped; what was written to {tmp_path / 'run'} is kept: the same command with --resume goes on"
    assert result.stderr.splitlines()[-1].startswith(line)


@pytest.mark.parametrize("words", [("train",), ("warmstart",), ("warmstart", "--examples-only")])
def test_a_run_that_is_at_work_is_not_written_to_by_another(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, words: tuple[str, ...]
) -> None:
    """As when its job list was killed, and not what it had begun, and is started again."""
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    with locked(tmp_path / "run"):
        result = invoke(words[0], run, *words[1:], "--resume")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"{tmp_path / 'run'} is being written by another run: wait for it")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_disk_that_is_full_at_a_checkpoint_is_one_line(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    """By the limit on the size of a file, which writing meets as it meets a full disk."""
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000,) * 2)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"{limit}; from jade.cli.main import main; main()", "train", str(run)],
        env={name: value for name, value in os.environ.items() if not name.startswith("COV")},  # it writes files too
        capture_output=True,
        text=True,
    )
    said = "jade: not everything could be written (File too large); make room and run it again"
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (2, [said])
    assert "Traceback" not in done.stderr
    assert Checkpoints(tmp_path / "run" / "checkpoints").all() == []


def test_a_resumed_run_says_when_its_step_size_will_fall_otherwise(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    for decay, said in (("none", False), ("linear", True)):
        given = ("train", run, "--out", tmp_path / decay, "--set", f"learn.ppo.decay={decay}", "--minutes", "0.0001")
        succeed(*given)
        assert "learn.iterations was" not in succeed(*given, "--resume").output
        longer = succeed(*given, "--resume", "--set", "learn.iterations=5").output
        assert ("learn.iterations was 2 and is now 5: from here the step size falls" in longer) is said


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("learn.train_roles=['XY']", "learn.train_roles"),
        ("reward.alpha=-1", "reward.alpha"),
        ("retrieval.index='gone'", "retrieval.index"),
        ("retrieval.index='{here}'", "retrieval.index"),
        ("roles.XY.model='jade-135m'", "roles.XY"),
        ("backbone.model='gone/some/model'", "backbone.model"),
        ("backbone.model='{here}'", "backbone.model"),
        ("backbone.model='gone.gguf'", "backbone.model"),
        ("backbone.adapter='{here}'", "backbone.adapter"),
        ("roles.AG.model='{here}'", "roles.AG.model"),
        ("learn.credit.rule='none:such'", "learn.credit.rule"),
        ("learn.held_out=['{train}']", "learn.questions"),
        ("learn.dev=['{train}']", "learn.questions"),
    ],
)
def test_a_bad_config_leaves_nothing_behind(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, override: str, field: str
) -> None:
    run = write_config(tmp_path / "run.toml", tiny_model, settings)
    result = invoke("train", run, "--set", override.format(train=settings["learn"]["questions"][0], here=tmp_path))
    assert isinstance(result.exception, ConfigError)
    assert field in str(result.exception)
    assert not (tmp_path / "run").exists()
