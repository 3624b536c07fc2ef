from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from learn_runs import make_config

from jade.config import Config, load_config
from jade.config.section import ROLE_CODES
from jade.errors import ConfigError
from jade.learn.check import check_training, say_untrained
from jade.learn.checkpoint import FILES, Checkpoints
from jade.learn.open import claim, differences, say_if_new
from jade.learn.questions import QuestionStream, read_question_file
from jade.learn.warmstart.collect import plan_course
from jade.retrieval.build import build_index
from jade.types import Passage

EXAMPLE = Path(__file__).parents[2] / "examples" / "fact_checker.py"


def write_questions(path: Path, *texts: str, answer: str = "Ada") -> Path:
    rows = [{"id": f"{path.stem}{n}", "question": text, "golden_answers": [answer]} for n, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def sound(tiny_model: Path, tmp_path: Path, index: Path) -> dict[str, Any]:
    """Settings of a run that can begin."""
    train = write_questions(tmp_path / "train.jsonl", "Who wrote Emma?", "Who wrote Ulysses?")
    dev = write_questions(tmp_path / "dev.jsonl", "Who wrote Dubliners?")
    return {
        "backbone": {"model": str(tiny_model), "device": "cpu"},
        "retrieval": {"index": str(index)},
        "learn": {"questions": [str(train)], "dev": [str(dev)]},
    }


def refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        check_training(Config.model_validate(settings))


@pytest.mark.parametrize(
    ("team", "roles", "untrained"),
    [
        ({}, None, ""),
        ({"extensions": [str(EXAMPLE)]}, None, "FC"),
        ({"extensions": [str(EXAMPLE)]}, [*ROLE_CODES, "FC"], ""),
        ({}, ["P", "AG"], "QDS, QDP, QR, DS, AS"),
        ({"workflows": ["R,AG"]}, ["AG"], "AS"),
        ({"workflows": ["S1"]}, ["S1"], ""),
    ],
)
def test_roles_that_work_and_learn_nothing_are_named(
    team: dict[str, Any], roles: list[str] | None, untrained: str
) -> None:
    said: list[str] = []
    say_untrained(Config.model_validate({"team": team, "learn": {"train_roles": roles} if roles else {}}), said.append)
    line = f"not trained, though of the team: {untrained} (learn.train_roles names those that are)"
    assert said == ([line] if untrained else [])


def test_a_sound_config_passes(sound: dict[str, Any]) -> None:
    material = check_training(Config.model_validate(sound))
    assert [len(file) for file in material.train] == [2]
    assert [len(file) for file in material.dev] == [1]


@pytest.mark.parametrize(
    ("learn", "field"),
    [
        ({"train_roles": ["P", "XY"]}, r"learn\.train_roles: 'XY'"),
        ({"role_temperature": {"XY": 0.5}}, r"learn\.role_temperature: 'XY'"),
        ({"ppo": {"role_entropy": {"XY": 0.5}}}, r"learn\.ppo\.role_entropy: 'XY'"),
        ({"ppo": {"role_weight": {"XY": 0.5}}}, r"learn\.ppo\.role_weight: 'XY'"),
        ({"train_roles": []}, r"learn\.train_roles is empty"),
        ({"questions": []}, r"learn\.questions is empty"),
        ({"questions": ["absent.jsonl"]}, r"learn\.questions: absent\.jsonl"),
        ({"held_out": ["absent.jsonl"]}, r"learn\.held_out: absent\.jsonl"),
        ({"credit": {"rule": "nonsense"}}, r"learn\.credit\.rule: 'nonsense'"),
        ({"credit": {"rule": "group"}, "rollouts": 1}, r"learn\.rollouts"),
        ({"policy": {"critic": "none"}}, r"learn\.policy\.critic"),
        ({"trackers": ["wandb"]}, r"learn\.trackers: 'wandb' is none of"),
    ],
)
def test_bad_learning_settings_are_refused_by_name(sound: dict[str, Any], learn: dict[str, Any], field: str) -> None:
    refused(sound | {"learn": sound["learn"] | learn}, field)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"retrieval": {"index": ""}}, r"retrieval\.index is not set"),
        ({"retrieval": {"index": "no/such/folder"}}, r"retrieval\.index: no/such/folder"),
        ({"backbone": {"model": "http://localhost:8000/v1"}}, r"backbone\.model: http"),
        ({"roles": {"AG": {"model": "http://localhost:8000/v1"}}}, r"roles\.AG"),
        ({"team": {"constrain_plans": True}}, r"team\.constrain_plans"),
        ({"reward": {"dial": 0.2, "alpha": 0.1}}, r"reward\.dial"),
        ({"reward": {"effort": "low"}}, r"reward\.effort: needs reward\.dial"),
        ({"reward": {"dial": 0.2, "ramp": 3}}, r"reward\.ramp"),
        ({"reward": {"mirror": True}}, r"reward\.mirror: needs reward\.dial"),
        ({"reward": {"dial": 0.2, "untold": True}}, r"reward\.untold: training tells every question its prices"),
    ],
)
def test_bad_settings_elsewhere_are_refused_by_name(sound: dict[str, Any], section: dict[str, Any], field: str) -> None:
    refused(sound | section, field)


@pytest.mark.parametrize(("rule", "critic", "is_idle"), [("group", "head", True), ("group", "none", False)])
def test_a_critic_that_nobody_asks_is_named(sound: dict[str, Any], rule: str, critic: str, is_idle: bool) -> None:
    said: list[str] = []
    learn = sound["learn"] | {"rollouts": 2, "credit": {"rule": rule}, "policy": {"critic": critic}}
    check_training(Config.model_validate(sound | {"learn": learn}), said.append)
    assert any("learn.policy.critic: group credit asks no critic" in line for line in said) == is_idle


def test_halves_that_are_compared_need_two_rollouts_each(sound: dict[str, Any]) -> None:
    mirrored = sound | {"reward": {"dial": 0.2, "mirror": True}}
    learn = sound["learn"] | {"credit": {"rule": "group"}}
    refused(mirrored | {"learn": learn | {"rollouts": 3}}, r"learn\.rollouts: with reward\.mirror .*so 4 and not 3")
    check_training(Config.model_validate(mirrored | {"learn": learn | {"rollouts": 4}}))


def test_a_mirror_needs_a_second_rollout(sound: dict[str, Any]) -> None:
    mirrored = sound | {"reward": {"dial": 0.2, "mirror": True}}
    refused(mirrored, r"learn\.rollouts: with reward\.mirror .* of 1 none")
    check_training(Config.model_validate(mirrored | {"learn": sound["learn"] | {"rollouts": 2}}))


def test_a_frozen_role_may_not_share_the_model_that_is_trained(sound: dict[str, Any]) -> None:
    learn = sound["learn"] | {"train_roles": ["P"]}
    refused(sound | {"learn": learn, "roles": {"AG": sound["backbone"]}}, r"roles\.AG: would share")


def test_negative_prices_are_refused_when_the_config_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reward\.alpha"):
        load_config(None, ["reward.alpha=-0.1"])


@pytest.mark.parametrize("measured", ["dev", "held_out"])
def test_a_question_that_is_measured_on_may_not_be_trained_on(
    sound: dict[str, Any], tmp_path: Path, measured: str
) -> None:
    same = write_questions(tmp_path / "other.jsonl", "who wrote EMMA", answer="Austen")
    refused(sound | {"learn": sound["learn"] | {measured: [str(same)]}}, rf"learn\.questions: .* learn\.{measured}")


def test_questions_for_yes_or_no_can_be_left_out(sound: dict[str, Any], tmp_path: Path) -> None:
    mixed = write_questions(tmp_path / "mixed.jsonl", "Is Emma a novel?", "Is Dubliners one?", answer="No")
    guessed = write_questions(tmp_path / "guessed.jsonl", "Is Ulysses one?", answer="Yes")
    with mixed.open("a") as file:
        file.write(json.dumps({"id": "3", "question": "Who wrote Persuasion?", "golden_answers": ["Ada"]}) + "\n")
    for yes_no, expected in ((True, [2, 3]), (False, [2, 1])):
        learn = sound["learn"] | {"questions": [*sound["learn"]["questions"], str(mixed)], "yes_no": yes_no}
        assert [len(file) for file in check_training(Config.model_validate(sound | {"learn": learn})).train] == expected
    refused(sound | {"learn": learn | {"questions": [*learn["questions"], str(guessed)]}}, r"learn\.yes_no.*guessed")


@pytest.mark.parametrize(
    ("overlap", "kept", "said"),
    [
        ("refuse", 2, "1 of 2 training questions share a hop or evidence with what is measured on"),
        ("drop", 1, "1 of 2 training questions left out for overlap: 1 by evidence"),
    ],
)
def test_training_questions_that_share_evidence_with_what_is_measured_are_counted(
    sound: dict[str, Any], tmp_path: Path, overlap: str, kept: int, said: str
) -> None:
    """Two questions whose answer stands on one page are one fact in other words."""
    texts = {"train": ("Who wrote Emma?", "Who wrote Ulysses?"), "test": ("Emma was written by whom?",)}
    for name, questions in texts.items():
        rows = [
            {"id": text, "question": text, "golden_answers": ["An Author"], "metadata": {"supporting_titles": [page]}}
            for text in questions
            for page in ("Emma", "Ulysses")
            if page in text
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"questions": [str(tmp_path / "train.jsonl")], "held_out": [str(tmp_path / "test.jsonl")]}
    heard: list[str] = []
    material = check_training(Config.model_validate(sound | {"learn": {**files, "overlap": overlap}}), heard.append)
    assert [len(file) for file in material.train] == [kept]
    assert [line[: len(said)] for line in heard] == [said]


def test_overlapping_questions_can_be_dropped_instead(sound: dict[str, Any], tmp_path: Path) -> None:
    same = write_questions(tmp_path / "other.jsonl", "who wrote EMMA", answer="Austen")
    learn = sound["learn"] | {"held_out": [str(same)], "overlap": "drop"}
    material = check_training(Config.model_validate(sound | {"learn": learn}))
    assert [question.text for question in material.train[0]] == ["Who wrote Ulysses?"]


@pytest.mark.parametrize("balance", [False, True])
def test_a_file_that_the_overlap_empties_is_refused_by_name(
    sound: dict[str, Any], tmp_path: Path, balance: bool
) -> None:
    train = [*sound["learn"]["questions"], str(write_questions(tmp_path / "leaky.jsonl", "Who wrote Persuasion?"))]
    same = write_questions(tmp_path / "other.jsonl", "who wrote PERSUASION")
    learn = {"questions": train, "held_out": [str(same)], "overlap": "drop", "balance": balance}
    refused(sound | {"learn": sound["learn"] | learn}, r"learn\.overlap: every question of .*leaky\.jsonl")


def test_a_file_of_which_the_part_holds_nothing_is_refused_by_name(sound: dict[str, Any]) -> None:
    (path,) = sound["learn"]["questions"]
    learn = sound["learn"] | {"part": [0.0, 1e-9]}
    refused(sound | {"learn": learn}, rf"learn\.part: \[0, 1e-09\] holds no question of {path}")


def test_nothing_left_to_train_on_is_said_before_any_work(sound: dict[str, Any]) -> None:
    learn = sound["learn"] | {"held_out": sound["learn"]["questions"], "overlap": "drop"}
    refused(sound | {"learn": learn}, r"learn\.overlap: every question")
    warmstart = {"questions": learn["questions"], "held_out": learn["questions"]}
    with pytest.raises(ConfigError, match=r"warmstart\.questions: all are left out"):
        plan_course(Config.model_validate(sound | {"warmstart": warmstart}))


@pytest.mark.parametrize("resume", [False, True])
def test_a_config_that_somebody_wrote_is_not_replaced_by_the_runs_own(
    tiny_model: Path, tmp_path: Path, resume: bool
) -> None:
    text = f"# What I want to find out.\nbackbone.model = '{tiny_model}'\n"
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"--out: .*config\.toml is not a run's own"):
        claim(load_config(tmp_path / "config.toml"), tmp_path, resume)
    assert (tmp_path / "config.toml").read_text() == text


def test_a_run_that_came_to_no_checkpoint_may_be_begun_again(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model)
    for resume in (False, False, True):
        claim(config, tmp_path, resume)


def test_a_run_of_before_a_setting_was_there_goes_on_though_it_came_to_no_checkpoint(
    tiny_model: Path, tmp_path: Path
) -> None:
    config = make_config(tiny_model)
    claim(config, tmp_path, resume=False)
    written = tmp_path / "config.toml"
    older = "".join(line for line in written.read_text().splitlines(keepends=True) if not line.startswith("shuffled"))
    assert older != written.read_text()
    written.write_text(older)
    claim(config, tmp_path, resume=True)
    assert "shuffled" in written.read_text()


def test_going_on_with_nothing_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    say_if_new(tmp_path / "mistyped", said.append)
    assert said == [f"there is no run in {tmp_path / 'mistyped'} to go on with: it begins"]


def test_a_folder_with_a_run_is_not_written_over(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model)
    claim(config, tmp_path, resume=False)
    (tmp_path / "checkpoints" / "step-000000").mkdir(parents=True)
    for name in FILES:
        (tmp_path / "checkpoints" / "step-000000" / name).touch()
    with pytest.raises(ConfigError, match="--resume"):
        claim(config, tmp_path, resume=False)
    claim(config, tmp_path, resume=True)


def test_settings_are_never_half_there(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, longer = (make_config(tiny_model, {"learn": {"iterations": number}}) for number in (3, 99))
    claim(config, tmp_path, resume=False)
    write = Path.write_text

    def write_half(path: Path, text: str, **how: Any) -> int:
        write(path, text[: len(text) // 2], **how)
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="disk is full"):
        claim(longer, tmp_path, resume=True)
    monkeypatch.undo()
    assert load_config(tmp_path / "config.toml") == config
    claim(longer, tmp_path, resume=True)
    assert load_config(tmp_path / "config.toml") == longer


def test_a_resumed_run_must_be_the_same_run(tiny_model: Path, tmp_path: Path) -> None:
    claim(make_config(tiny_model), tmp_path, resume=False)
    claim(make_config(tiny_model, {"learn": {"iterations": 99}}), tmp_path, resume=True)
    with pytest.raises(ConfigError, match=r"learn\.ppo\.clip: is 0\.3 and was 0\.2 when the run began in "):
        claim(make_config(tiny_model, {"learn": {"iterations": 99, "ppo": {"clip": 0.3}}}), tmp_path, resume=True)


@pytest.mark.parametrize("changed", ["prompts/planner.md", "mine.py", "roles.py", "worth.py"])
def test_a_resumed_run_reads_what_it_began_with(
    tiny_model: Path, tmp_path: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config names the same files; what stands in them may be something else by now."""
    (tmp_path / "prompts").mkdir()
    for name in ("prompts/planner.md", "mine.py", "roles.py", "worth.py"):
        (tmp_path / name).write_text("one")
    settings = {
        "team": {"prompts": tmp_path / "prompts", "extensions": [str(tmp_path / "roles.py")]},
        "learn": {"credit": {"rule": f"{tmp_path}/mine.py:rule"}},
        "reward": {"outcome": f"{tmp_path}/worth.py:worth"},
    }
    config = make_config(tiny_model, settings)
    folder = tmp_path / "run"
    claim(config, folder, resume=False)
    (tmp_path / changed).write_text("other")
    claim(config, folder, resume=True)  # nothing had been learned yet
    monkeypatch.setattr(Checkpoints, "all", lambda self: [tmp_path])
    claim(config, folder, resume=True)
    (tmp_path / changed).write_text("a third")
    with pytest.raises(ConfigError, match=rf"{changed}: is not what it was when the run in .* began"):
        claim(config, folder, resume=True)
    (tmp_path / changed).write_text("other")
    claim(config, folder, resume=True)
    for damaged in ("", "[]", "null"):
        (folder / "texts.json").write_text(damaged)
        with pytest.raises(ConfigError, match=r"texts\.json: is not what was written there"):
            claim(config, folder, resume=True)


def begun(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has learned something already."""
    claim(config, folder, resume=False)
    monkeypatch.setattr(Checkpoints, "all", lambda self: [folder])
    claim(config, folder, resume=True)


def test_a_resumed_run_asks_the_questions_it_began_with(
    sound: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate(sound)
    begun(config, tmp_path / "run", monkeypatch)
    for name in ("train.jsonl", "dev.jsonl"):
        before = (tmp_path / name).read_bytes()
        write_questions(tmp_path / name, "Who wrote Persuasion?")
        with pytest.raises(ConfigError, match=rf"{name}: is not what it was when the run in .* began"):
            claim(config, tmp_path / "run", resume=True)
        (tmp_path / name).write_bytes(before)
    claim(config, tmp_path / "run", resume=True)


def test_a_resumed_run_stands_on_the_weights_it_began_with(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter over other weights than it was trained over says nothing sensible."""
    model = shutil.copytree(tiny_model, tmp_path / "model")
    begun(make_config(model), tmp_path / "run", monkeypatch)
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"else")
    with pytest.raises(ConfigError, match="model: is not what it was when the run in"):
        claim(make_config(model), tmp_path / "run", resume=True)


def test_a_resumed_run_searches_what_it_began_with(
    sound: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "own-index"

    def make_index(text: str) -> None:
        build_index(place, {"one": text}, lambda name: [[Passage("one", "Emma", text)]], settings={}, fresh=True)

    make_index("Emma was written by Jane Austen.")
    config = Config.model_validate(sound | {"retrieval": {"index": str(place)}})
    begun(config, tmp_path / "run", monkeypatch)
    make_index("Emma was written by somebody else.")
    with pytest.raises(ConfigError, match="own-index: is not what it was when the run in"):
        claim(config, tmp_path / "run", resume=True)


def test_a_run_that_noted_its_texts_alone_goes_on(
    sound: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate(sound)
    begun(config, tmp_path / "run", monkeypatch)
    (tmp_path / "run" / "texts.json").write_text("{}")
    claim(config, tmp_path / "run", resume=True)


def test_examples_that_were_made_with_other_roles_are_not_taught(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "roles.py").write_text("one")
    config = make_config(tiny_model, {"team": {"extensions": [str(tmp_path / "roles.py")]}})
    claim(config, tmp_path / "run", resume=False)
    (tmp_path / "run" / "examples.jsonl.gz").write_bytes(b"")
    (tmp_path / "roles.py").write_text("other")
    with pytest.raises(ConfigError, match=r"roles\.py: is not what it was"):
        claim(config, tmp_path / "run", resume=True)


def test_differences_between_configs_are_named(tiny_model: Path) -> None:
    assert differences(make_config(tiny_model), make_config(tiny_model, {"seed": 3, "reward": {"alpha": 0.1}})) == [
        "reward.alpha",
        "seed",
    ]


def make_stream(balance: bool, tmp_path: Path) -> QuestionStream:
    files = [
        write_questions(tmp_path / f"{name}.jsonl", *map(str, range(count))) for name, count in (("a", 7), ("b", 2))
    ]
    return QuestionStream([read_question_file(path) for path in files], seed=1, balance=balance)


def test_every_pass_draws_every_question_once_in_another_order(tmp_path: Path) -> None:
    stream = make_stream(False, tmp_path)
    passes = [[q.id for n in range(3) for q in stream.draw(3 * epoch + n, 3)] for epoch in range(2)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(q.id for file in stream.files for q in file)
    assert passes[0] != passes[1]


def test_a_balanced_stream_draws_evenly_from_all_files(tmp_path: Path) -> None:
    drawn = make_stream(True, tmp_path).draw(4, 10)
    assert sorted(question.dataset for question in drawn) == ["a"] * 5 + ["b"] * 5


def test_what_is_drawn_depends_on_the_iteration_alone(tmp_path: Path) -> None:
    assert make_stream(True, tmp_path).draw(9, 4) == make_stream(True, tmp_path).draw(9, 4)
