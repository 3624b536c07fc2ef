"""The scripts of `runs/` that train and test many rows: what they would run is what the tables say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from jade.config import ROLE_CODES, load_config
from jade.evaluate.methods import METHODS
from jade.team.team import build_team

RUNS = Path(__file__).resolve().parents[2] / "runs"
TRAINED = [name for name, method in METHODS.items() if method.train_roles]


def would_run(script: str, *words: object, **settings: str) -> list[list[str]]:
    """The calls of jade that a script makes, in words."""
    environment = os.environ | {"JADE": "echo"} | settings
    command = [str(RUNS / script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=RUNS.parent, check=True)
    return [line.split(" ") for line in done.stdout.splitlines()]


def overrides(call: Sequence[str]) -> list[str]:
    return [word for before, word in pairwise(call) if before == "--set"]


def option(call: Sequence[str], name: str) -> str:
    return call[call.index(name) + 1]


def the_call(calls: Sequence[list[str]], verb: str, place: str) -> list[str]:
    (found,) = [call for call in calls if call[0] == verb and option(call, "--out").endswith(place)]
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return would_run("rows.sh", tmp_path_factory.mktemp("rows"), "0", 7, "--set", "learn.iterations=3")


@pytest.mark.parametrize("row", TRAINED)
def test_a_row_trains_the_roles_and_the_workflows_of_its_method(rows: list[list[str]], row: str) -> None:
    call, method = the_call(rows, "train", f"train/{row}-0"), METHODS[row]
    config = load_config(Path(call[1]), overrides(call))
    assert config.team.workflows == method.workflows
    assert config.team.child_workflows == method.child_workflows
    assert set(config.learn.train_roles) == set(method.train_roles)
    assert config.learn.iterations == 3
    build_team(config.team)


@pytest.mark.parametrize("row", TRAINED)
def test_whoever_does_not_learn_speaks_with_the_warm_start_in_training_and_in_the_test(
    rows: list[list[str]], row: str
) -> None:
    kept = set() if row == "search-r1" else set(ROLE_CODES) - set(METHODS[row].train_roles)
    trained, tested = the_call(rows, "train", f"train/{row}-0"), the_call(rows, "eval", f"test/{row}-0")
    for call in (trained, tested):
        config = load_config(None, [each for each in overrides(call) if each.startswith("roles.")])
        assert set(config.roles) == kept
        assert {backbone.model.rpartition("/")[2] for backbone in config.roles.values()} <= {"start"}
    assert option(tested, "--method") == row
    assert option(tested, "--model").endswith(f"model/{row}-0")


def test_rows_differ_in_nothing_else_but_the_room_for_one_long_context(rows: list[list[str]]) -> None:
    """Also in the warm start, which teaches the team and the searcher at once."""
    trains = [call for call in rows if call[0] == "train"]
    free = re.compile(r"(team|roles|learn\.(train_roles|role_temperature)|backbone\.max_prompt_tokens)\b")
    assert len({tuple(each for each in overrides(call) if not free.match(each)) for call in trains}) == 1
    (warm,) = [call for call in rows if call[0] == "warmstart"]
    assert set(load_config(Path(warm[1]), overrides(warm)).warmstart.roles) == {*ROLE_CODES, "S1"}


def test_the_report_has_all_ten_methods(rows: list[list[str]]) -> None:
    report = rows[-1]
    assert report[0] == "report"
    named = {word.partition("=")[0] for word in report if "=" in word}
    untrained = option(the_call(rows, "eval", "test/warm-start"), "--method").split(",")
    assert named | set(untrained) == set(METHODS) - {"oracle"}


def test_rows_and_seeds_can_be_chosen(tmp_path: Path) -> None:
    calls = would_run("rows.sh", tmp_path, "4 5", ROWS="rrr jade")
    outs = [Path(option(call, "--out")).name for call in calls if call[0] == "train"]
    assert outs == ["rrr-4", "jade-4", "rrr-5", "jade-5"]


def test_several_rows_at_a_time_do_the_same_work(tmp_path: Path) -> None:
    one_by_one = would_run("rows.sh", tmp_path / "out", "0", 5)
    shown = would_run("rows.sh", tmp_path / "out", "0", 5, JOBS="3")
    logs = [log.read_text().splitlines() for log in (tmp_path / "out/log").glob("*.log")]
    assert len(logs) == len(TRAINED)
    assert sorted([*shown, *(line.split(" ") for log in logs for line in log)]) == sorted(one_by_one)
    assert shown[-1] == one_by_one[-1]


def test_a_row_that_fails_ends_the_script_and_names_its_log(tmp_path: Path) -> None:
    jade = tmp_path / "jade"
    jade.write_text("#!/bin/sh\ncase $*\tin *train/bgm*) exit 3 ;; esac\n")
    jade.chmod(0o755)
    environment = os.environ | {"JADE": str(jade), "JOBS": "4"}
    done = subprocess.run([RUNS / "rows.sh", tmp_path], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr == f"a row failed: see {tmp_path}/log\n"


ARMS: dict[str, dict[str, object]] = {
    "joint": {},
    "planner-only": {"train_roles": {"P"}},
    "executors-only": {"train_roles": set(ROLE_CODES) - {"P"}},
    "group": {"rule": "group"},
    "shared": {"rule": "shared", "critic": "head"},
    "trajectory": {"rule": "trajectory", "critic": "head"},
    "alpha": {"alpha": 0.1},
    "beta": {"beta": 0.1},
    "both": {"alpha": 0.1, "beta": 0.1},
    "dear": {"alpha": 0.3, "beta": 0.3},
    "single": {"data": {"nq", "popqa"}},
    "multi": {"data": {"2wiki", "musique"}},
    "whole": {"workflows": ("R,AG",), "k": 10, "data": {"nq", "popqa"}},
    "select": {"workflows": ("R,DS,AG",), "k": 10, "data": {"nq", "popqa"}},
    "explore": {"workflows": ("R,DS,AG",), "k": 10, "data": {"nq", "popqa"}, "tries": {"P", "DS"}},
}
"""What an arm changes, and what it has in common with the others."""
COMMON: dict[str, object] = {
    "train_roles": set(ROLE_CODES), "rule": "branch", "critic": "none", "alpha": 0.0, "beta": 0.0,
    "data": {"2wiki", "hotpotqa", "popqa"}, "workflows": (), "k": 5, "tries": {"P"},
}  # fmt: skip


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_changes_what_it_is_named_for_and_nothing_else(tmp_path: Path, arm: str) -> None:
    calls = would_run("arms.sh", tmp_path, "3", 9, ARMS=arm, TESTS="")
    trained, exported, tested, _ = calls
    config = load_config(Path(trained[1]), overrides(trained))
    learn, datasets = config.learn, {Path(path).name.partition(".")[0] for path in config.learn.questions}
    tries = {role for role, bonus in learn.ppo.role_entropy.items() if bonus and learn.role_temperature[role] == 1}
    found = {
        "train_roles": set(learn.train_roles), "rule": learn.credit.rule, "critic": learn.policy.critic,
        "alpha": config.reward.alpha, "beta": config.reward.beta, "data": datasets,
        "workflows": tuple(config.team.workflows), "k": config.retrieval.k, "tries": tries,
    }  # fmt: skip
    assert found == COMMON | ARMS[arm]
    assert set(config.roles) == set(ROLE_CODES) - set(learn.train_roles)
    assert config.seed == 3
    assert option(tested, "--model") == option(exported, "--out")
    in_the_test = load_config(None, overrides(tested))
    assert in_the_test.team.child_workflows == config.team.child_workflows == ("R,AG",)
    assert in_the_test.team.workflows == config.team.workflows
    assert in_the_test.retrieval.k == config.retrieval.k
    assert in_the_test.backbone.max_prompt_tokens == config.backbone.max_prompt_tokens
    assert {role: each.model for role, each in in_the_test.roles.items()} == dict.fromkeys(
        config.roles, "data/start-model"
    )


def test_a_team_trained_apart_is_put_together_from_its_halves_and_not_trained_itself(tmp_path: Path) -> None:
    halves = would_run("arms.sh", tmp_path, "4", 9, ARMS="planner-only executors-only", TESTS="", REPORT="")
    (tested,) = would_run("arms.sh", tmp_path, "4", 9, ARMS="apart", TESTS="", REPORT="")
    planner, executors = (option(call, "--out") for call in halves if call[0] == "export")
    config = load_config(None, overrides(tested))
    assert {role: each.model for role, each in config.roles.items()} == {"P": planner}
    assert option(tested, "--model") == executors
    assert config.team.child_workflows == ("R,AG",)


def test_arms_are_reported_beside_the_start_and_the_untrained_model(tmp_path: Path) -> None:
    calls = would_run("arms.sh", tmp_path, "0 1", START="even")
    named = [word.partition("=")[0] for word in calls[-1] if "=" in word]
    pair = ["joint", "planner-only", "executors-only"]
    assert named == [*pair, *pair, "warm-start", "untrained"]
    assert option(calls[-1], "--baseline") == "joint"
    assert option(the_call(calls, "eval", "test/warm-start"), "--model") == "data/even-model"


def test_selection_may_be_given_more_to_leave_out(tmp_path: Path) -> None:
    trained, _, tested, _ = would_run("arms.sh", tmp_path, "0", ARMS="select", PASSAGES="20", TESTS="")
    for call in (trained, tested):
        config = load_config(None, overrides(call))
        assert (config.retrieval.k, config.backbone.max_prompt_tokens) == (20, 5120)


def test_a_fixed_plan_is_also_tested_before_training(tmp_path: Path) -> None:
    calls = would_run("arms.sh", tmp_path, "0", ARMS="select explore joint", BASE="some/model")
    before = {"warm-start": "data/start-model", "untrained": "some/model"}
    for name, model in before.items():
        fixed, planned = (the_call(calls, "eval", f"test/{place}") for place in (f"select-{name}", name))
        assert option(fixed, "--model") == option(planned, "--model") == model
        assert 'team.workflows=["R,DS,AG"]' in overrides(fixed)
        assert not any(word.startswith("team.workflows") for word in overrides(planned))
    named = [word.partition("=")[0] for word in calls[-1] if "=" in word]
    arms = ["select", "explore", "joint"]
    assert named == [*arms, "select-warm-start", "warm-start", "select-untrained", "untrained"]


def test_without_seeds_only_what_came_before_training_is_tested(tmp_path: Path) -> None:
    calls = would_run("arms.sh", tmp_path, "", ARMS="whole select", TESTS="untrained")
    assert [call[0] for call in calls] == ["eval", "eval"]  # and no report, which would have no arm to compare with
    assert [option(call, "--out") for call in calls] == [
        f"{tmp_path}/test/{arm}-untrained" for arm in ("whole", "select")
    ]


def test_the_larger_model_is_trained_by_the_same_arms(tmp_path: Path) -> None:
    small, *_ = would_run("arms.sh", tmp_path, "1", ARMS="joint", START="plain", TESTS="", REPORT="")
    calls = would_run(
        "larger.sh", tmp_path, "1", 9, "--set", "learn.iterations=7", ARMS="joint", START="plain", MODEL="m"
    )
    assert [call[0] for call in calls] == ["train", "export", "eval"]
    as_small, as_large = (load_config(Path(call[1]), overrides(call)) for call in (small, calls[0]))
    assert (as_large.backbone.model, as_large.learn.iterations, as_large.learn.dev) == ("m", 7, ())
    assert as_large.learn.ppo.learning_rate < as_small.learn.ppo.learning_rate
    assert as_large.learn.questions == as_small.learn.questions
    assert as_large.backbone.adapter == as_small.backbone.adapter


def test_options_of_a_caller_outweigh_those_of_the_larger_model(tmp_path: Path) -> None:
    own = ("--set", "learn.ppo.learning_rate=1e-5")
    trained, *_ = would_run("larger.sh", tmp_path, "0", 9, *own, ARMS="joint", START="plain", MODEL="m")
    assert load_config(Path(trained[1]), overrides(trained)).learn.ppo.learning_rate == 1e-5


@pytest.mark.parametrize("lacking", ["MODEL", "START"])
def test_the_larger_model_and_its_start_must_be_named(tmp_path: Path, lacking: str) -> None:
    environment = os.environ | {"JADE": "echo", "MODEL": "m", "START": "plain"} | {lacking: ""}
    done = subprocess.run([RUNS / "larger.sh", tmp_path, "0", "9"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "MODEL=... START=... [ARMS=joint] runs/larger.sh OUT SEEDS LIMIT" in done.stderr


@pytest.mark.parametrize("seeds", ["0", ""])
def test_an_arm_or_a_test_that_is_not_known_ends_the_script_before_any_work(tmp_path: Path, seeds: str) -> None:
    for given, complaint in (
        ({"ARMS": "whole joynt"}, "no arm is called joynt"),
        ({"TESTS": "start"}, "TESTS are warm-start and untrained, not start"),
    ):
        environment = os.environ | {"JADE": "echo"} | given
        done = subprocess.run([RUNS / "arms.sh", tmp_path, seeds], capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"runs/arms.sh: {complaint}\n")


def test_a_lesson_teaches_selecting_and_reading_among_as_many_passages_as_are_named(tmp_path: Path) -> None:
    taught, adapter, merged = would_run(
        "lesson.sh", "ten", 10, "--set", "warmstart.epochs=3", START="full", LESSONS="nq squad"
    )
    config = load_config(Path(taught[1]), overrides(taught))
    assert (config.retrieval.k, config.backbone.max_prompt_tokens, config.warmstart.epochs) == (10, 2560, 3)
    assert str(config.backbone.adapter) == "data/full-adapter"
    assert [path.name for path in config.warmstart.questions] == ["nq.train.jsonl.gz", "squad.train.jsonl.gz"]
    assert set(config.warmstart.roles) == {"DS", "AG"}
    assert config.warmstart.shuffled == 0.0
    assert [call[0] for call in (adapter, merged)] == ["export", "export"]
    assert [option(call, "--out") for call in (adapter, merged)] == ["data/ten-adapter", "data/ten-model"]
    assert ["--merge" in call for call in (adapter, merged)] == [False, True]
    (alone,) = would_run("lesson.sh", "ten", 10, "--examples-only")
    assert alone[:2] == ["warmstart", "runs/hops-warm.toml"]


def test_a_lesson_in_mixed_order_and_its_two_arms_differ_in_the_plan_and_in_what_the_selector_tries() -> None:
    (taught,) = would_run("mixed.sh", "lesson", "--examples-only")
    lesson = load_config(Path(taught[1]), overrides(taught))
    assert lesson.warmstart.shuffled == 0.8
    assert lesson.team.ask_first == ("DS",)
    assert lesson.backbone.adapter is None
    arms = {arm: would_run("mixed.sh", arm, 2) for arm in ("explore", "whole")}
    configs = {arm: load_config(Path(calls[0][1]), overrides(calls[0])) for arm, calls in arms.items()}
    assert {arm: config.team.workflows for arm, config in configs.items()} == {
        "explore": ("R,DS,AG",),
        "whole": ("R,AG",),
    }
    same = {
        config.learn.model_copy(update={"role_temperature": {}, "ppo": None}).model_dump_json()
        for config in configs.values()
    }
    assert len(same) == 1
    assert {config.learn.ppo.learning_rate for config in configs.values()} == {1.2e-4}
    assert {config.learn.part[0] for config in configs.values()} == {lesson.warmstart.part[1]}, "no question in both"
    for arm, (trained, exported, tested) in arms.items():
        assert option(trained, "--out") == f"out/mixed-selection/train/{arm}-2"
        assert option(tested, "--model") == option(exported, "--out")
        assert load_config(None, overrides(tested)).team.ask_first == ("DS",)


def test_every_model_is_measured_under_the_same_wordings(tmp_path: Path) -> None:
    calls = would_run("variants.sh", "data", "index", tmp_path, 50, "warm=a", "trained=b", "--", "--concurrency", 9)
    assert [call[0] for call in calls] == ["eval", "eval", "report"]
    assert [option(call, "--model") for call in calls[:2]] == ["a", "b"]
    assert {(option(call, "--prompt-variants"), option(call, "--concurrency")) for call in calls[:2]} == {("4", "9")}
    assert calls[2][1:3] == [f"warm={tmp_path}/warm", f"trained={tmp_path}/trained"]


@pytest.mark.parametrize("script", ["rows.sh", "arms.sh", "variants.sh", "lesson.sh", "mixed.sh", "ship.sh"])
def test_without_its_words_a_script_says_how_it_is_called(script: str) -> None:
    done = subprocess.run([RUNS / script], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"runs/{script} " in done.stderr


def test_the_team_that_ships_is_trained_apart_from_dev_and_test_and_measured_as_it_ships() -> None:
    trained, adapter, merged = would_run("ship.sh", "train", "anew", "data/some-adapter", "--set", "learn.iterations=3")
    config = load_config(Path(trained[1]), overrides(trained))
    assert config.learn.iterations == 3
    assert str(config.backbone.adapter) == "data/some-adapter"
    learned = {path.name.split(".")[1] for path in config.learn.questions}
    assert learned == {"learn", "train"}
    held_out = {path.name.split(".")[0] for path in config.learn.held_out if ".test." in path.name}
    assert held_out == {"nq", "popqa", "ambigqa", "hotpotqa", "2wiki", "musique", "bamboogle"}
    assert {option(adapter, "--checkpoint"), option(merged, "--checkpoint")} == {"newest"}, "no dev score picks it"
    (measured,) = would_run("ship.sh", "dev", "anew", "a-model")
    tested, world = would_run("ship.sh", "test", "anew", "a-model")
    assert [option(call, "--split") for call in (measured,)] == ["dev"]
    assert "--split" not in tested
    for call in (measured, tested, world):
        assert load_config(None, overrides(call)).team == load_config(None, []).team


def test_a_start_is_measured_on_dev_where_that_is_asked_for(tmp_path: Path) -> None:
    calls = would_run(
        "arms.sh", tmp_path, "", ARMS="whole", TESTS="warm-start", SPLIT="dev", BENCHMARKS="nq,popqa", REPORT=""
    )
    assert [(option(call, "--split"), option(call, "--benchmark")) for call in calls] == [("dev", "nq,popqa")]


def test_a_lesson_of_fewer_selections_has_a_name_of_its_own() -> None:
    (taught,) = would_run("mixed.sh", "lesson", "--examples-only", NAME="few", SELECTIONS="100")
    assert option(taught, "--out") == "out/few"
    assert load_config(Path(taught[1]), overrides(taught)).warmstart.role_examples["DS"] == 100
    trained, *_ = would_run("mixed.sh", "whole", 1, NAME="few")
    assert option(trained, "--out") == "out/few-selection/train/whole-1"
    assert "backbone.adapter=data/few-adapter" in overrides(trained)


def test_the_halves_of_the_tiny_team_learn_while_the_other_half_stays_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "out/world-tiny/warm/model").mkdir(parents=True)
    environment = os.environ | {"PYTHON": "echo", "ARMS": "ppo control planner-only executors-only", "SEEDS": "3"}
    done = subprocess.run(
        [RUNS / "world-tiny.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    calls = [line.split(" ")[2:] for line in done.stdout.splitlines() if line.startswith("-m jade train ")]
    configs = [load_config(RUNS.parent / call[1], overrides(call)) for call in calls]
    assert [option(call, "--out") for call in calls] == [
        f"out/world-tiny/{arm}-3" for arm in ("ppo", "control", "planner-only", "executors-only")
    ]
    joint, control, planner, executors = configs
    assert set(joint.learn.train_roles) > set(executors.learn.train_roles)
    assert control.learn.ppo.learning_rate == 0.0
    for half in (planner, executors):
        learning = half.learn.model_copy(update={"train_roles": joint.learn.train_roles})
        assert learning == joint.learn, "equal rollouts and updates"
        assert set(half.roles) | set(half.learn.train_roles) == set(joint.learn.train_roles)
        assert {own.model for own in half.roles.values()} == {"out/world-tiny/frozen"}
