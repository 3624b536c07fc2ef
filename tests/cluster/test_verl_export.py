"""What `jade export-verl` writes, and what it refuses. That verl takes it is tested in verl's own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import make_experience, make_transition
from learn_runs import make_config
from typer.testing import CliRunner

from jade.api.documents import index_documents
from jade.cli.main import app
from jade.cluster.verl_export import question_of, question_row
from jade.cluster.verl_rewards import RULES
from jade.config import CreditConfig, dump_config, load_config
from jade.corpus.world import make_world, write_world
from jade.errors import ConfigError
from jade.learn.credit.base import gae, on_last
from jade.learn.credit.rules import find_rule
from jade.types import Question, Transition

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("verl")
    write_world(make_world(50, 20, 0), folder / "world")
    index_documents([folder / "world" / "pages"], folder / "index")
    train, dev = (str(folder / "world" / f"questions.{split}.jsonl") for split in ("train", "dev"))
    return {"retrieval": {"index": str(folder / "index")}, "learn": {"questions": [train], "dev": [dev]}}


def export(tiny_model: Path, settings: dict[str, Any], folder: Path, *overrides: str) -> Path:
    config = folder / "run.toml"
    config.write_text(dump_config(make_config(tiny_model, settings)))
    arguments = ["export-verl", str(config), "--out", str(folder / "out"), "--gpus", "4"]
    result = CliRunner().invoke(app, [*arguments, *(part for each in overrides for part in ("--set", each))])
    if result.exception is not None:
        raise result.exception
    assert result.output == f"{folder / 'out'}/launch.sh\n"
    return folder / "out"


def test_everything_that_verl_needs_is_written(tiny_model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    out = export(tiny_model, settings, tmp_path, "learn.ppo.clip=0.3")
    names = {path.name for path in out.iterdir()}
    assert names == {"config.toml", "jade.yaml", "agent_loop.yaml", "train.parquet", "val.parquet", "launch.sh"}
    assert load_config(out / "config.toml").learn.ppo.clip == 0.3
    assert os.access(out / "launch.sh", os.X_OK)
    assert subprocess.run(["bash", "-n", str(out / "launch.sh")], check=False).returncode == 0
    text = (out / "jade.yaml").read_text()
    for line in ("clip_ratio: 0.3", "n_gpus_per_node: 4", 'name: "vllm"', 'default_agent_loop: "jade"'):
        assert line in text
    assert "lr: 0.001\n" in text


def test_what_the_agent_loop_reads_is_found_from_any_folder(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts the loop's processes wherever it likes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "answerer.md").write_text("Answer in one word.")
    (tmp_path / "roles.py").write_text("def register(team):\n    pass\n")
    (tmp_path / "mine.py").write_text("def worth(traces):\n    return [1.0 for trace in traces]\n")
    own = ("team.prompts=prompts", "team.extensions=['roles.py']", "reward.outcome=mine.py:worth")
    config = load_config(export(tiny_model, settings, tmp_path, *own) / "config.toml")
    assert config.team.prompts == tmp_path / "prompts"
    assert config.team.extensions == (str(tmp_path / "roles.py"),)
    assert config.reward.outcome == f"{tmp_path}/mine.py:worth"


def test_questions_survive_the_way_to_verl(tiny_model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    out = export(tiny_model, settings, tmp_path)
    rows = parquet.read_table(out / "train.parquet").to_pylist()
    assert len({row["extra_info"]["index"] for row in rows}) == len(rows) > 10
    asked = question_of(rows[3]["extra_info"])
    assert rows[3]["prompt"] == [{"role": "user", "content": asked.text}]
    assert asked.answers
    assert not rows[3]["extra_info"]["measured"]
    assert all(row["extra_info"]["measured"] for row in parquet.read_table(out / "val.parquet").to_pylist())


@given(st.text(), st.lists(st.text(), max_size=3))
def test_a_row_gives_its_question_back(text: str, answers: list[str]) -> None:
    question = Question("q7", text, tuple(answers), "nq")
    assert question_of(question_row(question, 0)["extra_info"]) == question


REFUSED = [
    ('learn.credit.rule="group"', "learn.credit.rule: 'group' has no form in verl"),
    ("learn.credit.lam=0.95", r"learn.credit.gamma, learn.credit.lam: 1.0, 0.95"),
    ('learn.credit.normalise="role"', "learn.credit.normalise: 'role'"),
    ('learn.ppo.weigh="role"', "learn.ppo.weigh: 'role'"),
    ('roles.AG.model="m"', "roles.AG"),
    ('backbone.adapter="a"', "backbone.adapter: merge it first"),
    ('learn.role_temperature={"P" = 0.5}', r"learn\.role_temperature"),
    ('learn.ppo.role_entropy={"P" = 0.1}', r"learn\.ppo\.role_entropy"),
    ('learn.ppo.role_weight={"P" = 0.1}', r"learn\.ppo\.role_weight"),
    ('learn.ppo.decay="linear"', r"learn\.ppo\.decay: 'linear'"),
    ("learn.balance=true", r"learn\.balance"),
]


@pytest.mark.parametrize(("setting", "complaint"), REFUSED, ids=[setting for setting, _ in REFUSED])
def test_what_verl_cannot_do_is_refused_by_name(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, setting: str, complaint: str
) -> None:
    overrides = [setting, "learn.rollouts=2"] if "group" in setting else [setting]
    with pytest.raises(ConfigError, match=complaint):
        export(tiny_model, settings, tmp_path, *overrides)
    assert not (tmp_path / "out").exists()


def test_without_pyarrow_the_extra_is_named_before_any_work(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"jade-team\[verl\]"):
        export(tiny_model, settings, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(
    tiny_model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    export(tiny_model, settings, tmp_path)
    with pytest.raises(ConfigError, match="exists and is not empty"):
        export(tiny_model, settings, tmp_path)


TRACES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.0, -1.0]), st.floats(-2, 2)), min_size=1, max_size=5)


@pytest.mark.parametrize("rule", RULES)
@given(calls=TRACES, team=st.floats(0, 1))
def test_one_reward_a_call_says_what_our_rule_says(rule: str, calls: list[Any], team: float) -> None:
    transitions: list[Transition] = [
        make_transition(step=str(number), num_tokens=length, outcome=team, cost=0.1, penalty=penalty)
        for number, (length, penalty, _) in enumerate(calls)
    ]
    values = [np.full(length, value) for length, _, value in calls]
    ours = find_rule(rule)(make_experience(transitions), values, CreditConfig(rule=rule, normalise="none"))
    rewards = RULES[rule](transitions)
    for number, reward in enumerate(rewards):
        inside = gae(on_last(reward, len(values[number])), values[number], 1.0, 1.0)
        assert inside == pytest.approx(ours.advantages[number])
