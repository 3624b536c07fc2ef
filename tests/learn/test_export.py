from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from learn_runs import make_config
from peft import PeftConfig, PeftModel
from peft.utils import save_and_load
from transformers import AutoModelForCausalLM, AutoTokenizer

from jade.backbone import weights
from jade.backbone.trained import as_trained
from jade.config import Config
from jade.engine.effort import effort_of
from jade.errors import ConfigError, TrainingStopped, WeightsMissing
from jade.learn.checkpoint import Checkpoints, Progress
from jade.learn.export import export_policy, export_run, find_checkpoint
from jade.learn.learner import Learner
from jade.learn.open import claim
from jade.learn.policy import Policy, load_policy
from jade.types import Effort

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def trained(config: Config) -> Policy:
    policy = load_policy(config.backbone, config.learn.policy)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, weight in policy.policy_parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.05)
    return policy


def logits_of(policy: Policy, tiny_model: Path) -> torch.Tensor:
    """What the policy says, by a model that was given its weights one by one."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in policy.sampler_weights():
            own[name].copy_(weight)
        logits: torch.Tensor = model(input_ids=IDS).logits
        return logits


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_a_whole_model_loads_in_transformers_and_gives_the_same_logits(
    tiny_model: Path, tmp_path: Path, adapt: str
) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": adapt}}})
    policy = trained(config)
    out = export_policy(policy, config, tmp_path / "out", merge=True)
    model = AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(model(input_ids=IDS).logits, logits_of(policy, tiny_model), atol=1e-6, rtol=1e-5)
    assert AutoTokenizer.from_pretrained(out).chat_template
    assert "jade" not in (out / "config.json").read_text()
    assert not list(out.glob("*.bin"))


def test_an_adapter_loads_in_peft_and_gives_the_same_logits(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": "lora"}}})
    policy = trained(config)
    out = export_policy(policy, config, tmp_path / "out")
    assert sorted(path.name for path in out.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), str(out))
    torch.testing.assert_close(model(input_ids=IDS).logits, logits_of(policy, tiny_model), atol=1e-6, rtol=1e-5)
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny_model)


def test_an_exported_adapter_is_where_the_next_training_begins(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": "lora"}}})
    policy = trained(config)
    out = export_policy(policy, config, tmp_path / "out")
    again = load_policy(config.backbone.model_copy(update={"adapter": out}), config.learn.policy)
    for (_, one), (_, other) in zip(policy.policy_parameters(), again.policy_parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_adapter_of_a_shipped_model_names_the_hubs_and_is_loaded_here_without_asking_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(weights.SHIPPED, "tiny", weights.SHIPPED["smollm2-135m"])
    monkeypatch.setattr(weights, "_shipped", lambda *_: tiny_model)
    monkeypatch.setattr(save_and_load, "check_file_exists_on_hf_hub", lambda *_, **__: pytest.fail("asked the hub"))
    config = make_config(Path("tiny"), {"learn": {"policy": {"adapt": "lora"}}})
    policy = trained(config)
    out = export_policy(policy, config, tmp_path / "out")
    assert PeftConfig.from_pretrained(str(out)).base_model_name_or_path == "HuggingFaceTB/SmolLM2-135M-Instruct"
    again = load_policy(config.backbone.model_copy(update={"adapter": out}), config.learn.policy)
    second = export_policy(again, config, tmp_path / "second")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert sorted((second / name).read_bytes()) == sorted((out / name).read_bytes())


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_exported_weights_know_the_dial_that_they_were_trained_with(
    tiny_model: Path, tmp_path: Path, adapt: str
) -> None:
    config = make_config(tiny_model, {"reward": {"dial": 0.7}, "learn": {"policy": {"adapt": adapt}}})
    out = export_policy(trained(config), config, tmp_path / "out")
    place = {"backbone": {"adapter": out} if adapt == "lora" else {"model": str(out)}}
    asked = as_trained(make_config(tiny_model, place | {"reward": {"effort": "low"}}))
    assert effort_of(asked.reward) == Effort(0.7, 0.7)
    assert as_trained(make_config(tiny_model, place)).reward.dial == 0.7
    # What a config says itself stands, 0 too.
    assert as_trained(make_config(tiny_model, place | {"reward": {"dial": 0.0}})).reward.dial == 0.0


def test_weights_without_a_dial_leave_the_config_as_it_is(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model)
    out = export_policy(trained(config), config, tmp_path / "out")
    assert not (out / "jade.json").exists()
    assert as_trained(config) == config


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dial": "much"}', '{"dial": -1}'])
def test_a_damaged_note_of_the_dial_is_named(tiny_model: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "jade.json").write_text(text)
    with pytest.raises(WeightsMissing, match=r"jade\.json names no dial"):
        as_trained(make_config(tiny_model, {"backbone": {"adapter": tmp_path}}))


def test_bfloat16_halves_the_size(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model)
    policy = trained(config)
    whole = export_policy(policy, config, tmp_path / "whole") / "model.safetensors"
    half = export_policy(policy, config, tmp_path / "half", dtype="bfloat16") / "model.safetensors"
    assert half.stat().st_size < 0.6 * whole.stat().st_size


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_a_whole_model_in_bfloat16_gives_the_same_logits_but_for_its_rounding(
    tiny_model: Path, tmp_path: Path, adapt: str
) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": adapt}}})
    policy = trained(config)
    out = export_policy(policy, config, tmp_path / "out", merge=True, dtype="bfloat16")
    expected = logits_of(policy, tiny_model)
    untrained = AutoModelForCausalLM.from_pretrained(tiny_model)(input_ids=IDS).logits
    tolerance = 2e-2 * float(expected.abs().max())
    for dtype in (torch.bfloat16, torch.float32):  # as it is written, and as a policy would load it
        model = AutoModelForCausalLM.from_pretrained(out, dtype=dtype)
        said = model(input_ids=IDS).logits.float()
        torch.testing.assert_close(said, expected, atol=tolerance, rtol=2e-2)
        assert (said - untrained).abs().max() > 5 * tolerance
    # Rounded once, from the policy's own float32: adapters are merged before that.
    weights = dict(policy.sampler_weights())
    written = dict(AutoModelForCausalLM.from_pretrained(out).named_parameters())
    assert {weight.dtype for weight in written.values()} == {torch.bfloat16}
    for name, weight in weights.items():
        assert torch.equal(written[name], weight.bfloat16()), name


def test_an_adapter_in_bfloat16_gives_the_same_logits_but_for_its_rounding(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"policy": {"adapt": "lora"}}})
    policy = trained(config)
    out = export_policy(policy, config, tmp_path / "out", dtype="bfloat16")
    expected = logits_of(policy, tiny_model)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), str(out))
    tolerance = 2e-2 * float(expected.abs().max())
    torch.testing.assert_close(model(input_ids=IDS).logits, expected, atol=tolerance, rtol=2e-2)


def make_run_folder(tiny_model: Path, folder: Path, best: int) -> Config:
    config = make_config(tiny_model)
    claim(config, folder, resume=False)
    learner = Learner(trained(config), config.learn)
    for iteration in (1, 2, 3):
        progress = Progress(iteration, best_iteration=best, best=0.5 if best > 0 else None)
        Checkpoints(folder / "checkpoints", keep=3).save(learner.policy, learner.optimiser, progress)
    return config


@pytest.mark.parametrize(("which", "best", "found"), [("best", 2, 2), ("best", -1, 3), ("newest", 2, 3), ("1", 2, 1)])
def test_the_best_the_newest_or_a_numbered_checkpoint_is_exported(
    tiny_model: Path, tmp_path: Path, which: str, best: int, found: int
) -> None:
    make_run_folder(tiny_model, tmp_path, best)
    assert find_checkpoint(tmp_path, which).name == f"step-{found:06d}"


def test_a_run_is_exported_from_its_folder_alone(tiny_model: Path, tmp_path: Path) -> None:
    config = make_run_folder(tiny_model, tmp_path / "run", best=-1)
    out = export_run(tmp_path / "run", tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(
        model(input_ids=IDS).logits, logits_of(trained(config), tiny_model), atol=1e-6, rtol=1e-5
    )


def test_a_folder_that_is_in_use_is_not_written_over(tiny_model: Path, tmp_path: Path) -> None:
    make_run_folder(tiny_model, tmp_path / "run", best=-1)
    with pytest.raises(ConfigError, match="not empty"):
        export_run(tmp_path / "run", tmp_path / "run")


def test_a_folder_without_a_name_is_refused_in_one_line(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run_folder(tiny_model, tmp_path / "run", best=-1)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"--out \.: .*give a folder by its name"):
        export_run(tmp_path / "run", Path())


def test_a_checkpoint_that_is_not_there_is_named(tiny_model: Path, tmp_path: Path) -> None:
    make_run_folder(tiny_model, tmp_path, best=-1)
    with pytest.raises(TrainingStopped, match="step-000009 does not exist; there are step-000001"):
        find_checkpoint(tmp_path, "9")
    with pytest.raises(TrainingStopped, match="holds no checkpoint"):
        find_checkpoint(tmp_path / "elsewhere", "best")
