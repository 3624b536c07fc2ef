"""One base in memory, an adapter for each role over it; switching never mixes them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from backbone_builders import make_model, make_prompt, make_tokenizer, recomputed_logprobs
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from jade.backbone.local.backbone import LocalBackbone
from jade.errors import BackboneFailed, WeightsMissing
from jade.types import Sampling

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's

TOKENIZER = make_tokenizer()
PROMPT = make_prompt("where is the river?")


def write_adapter(folder: Path, seed: int) -> Path:
    """A LoRA that changes the model, as peft writes it."""
    config = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(make_model(), config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.3)
    model.save_pretrained(str(folder))
    return folder


def adapted(folder: Path) -> Any:
    return PeftModel.from_pretrained(make_model(), folder).eval()


async def test_each_adapter_speaks_for_itself_in_a_mixed_batch(tmp_path: Path) -> None:
    folders = [write_adapter(tmp_path / name, seed) for seed, name in enumerate(("P", "AG"))]
    base = LocalBackbone(make_model(), TOKENIZER, device="cpu")
    backbones = [base, *(base.with_adapter(folder) for folder in folders)]
    asked = [
        backbone.generate(PROMPT, Sampling(1.0, max_tokens=10, seed=seed))
        for seed in range(3)
        for backbone in backbones
    ]
    found = await asyncio.gather(*asked)
    models = [make_model(), *map(adapted, folders)]
    for index, generation in enumerate(found):
        model = models[index % 3]
        expected = recomputed_logprobs(model, generation.prompt_ids, generation.token_ids, 1.0)
        assert generation.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    assert len({generation.token_ids for generation in found[:3]}) == 3
    for backbone in backbones:
        await backbone.close()


async def test_the_model_lives_until_the_last_who_shares_it_closes(tmp_path: Path) -> None:
    base = LocalBackbone(make_model(), TOKENIZER, device="cpu")
    planner = base.with_adapter(write_adapter(tmp_path / "P", 0))
    await base.close()
    assert (await planner.generate(PROMPT, Sampling(max_tokens=2))).token_ids
    with pytest.raises(BackboneFailed, match="closed"):
        await base.generate(PROMPT, Sampling())
    await planner.close()
    with pytest.raises(BackboneFailed, match="closed"):
        await planner.generate(PROMPT, Sampling())


async def test_a_learner_can_replace_the_weights_of_one_adapter(tmp_path: Path) -> None:
    first, second = write_adapter(tmp_path / "one", 1), write_adapter(tmp_path / "two", 2)
    base = LocalBackbone(make_model(), TOKENIZER, device="cpu")
    planner = base.with_adapter(first)
    before = await base.generate(PROMPT, Sampling(max_tokens=10))
    await planner.update_weights(load_file(second / "adapter_model.safetensors"), version=4)
    found, untouched = await asyncio.gather(*(b.generate(PROMPT, Sampling(max_tokens=10)) for b in (planner, base)))
    expected = recomputed_logprobs(adapted(second), found.prompt_ids, found.token_ids, 1.0)
    assert found.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    assert found.policy_version == 4
    assert untouched.token_ids == before.token_ids
    await planner.close()
    await base.close()


async def test_base_weights_can_be_replaced_under_an_adapter(tmp_path: Path) -> None:
    planner = LocalBackbone(make_model(), TOKENIZER, device="cpu").with_adapter(write_adapter(tmp_path / "P", 1))
    await planner.update_weights(make_model(seed=8).named_parameters(), version=1)
    found = await planner.generate(PROMPT, Sampling(max_tokens=10))
    fresh = PeftModel.from_pretrained(make_model(seed=8), tmp_path / "P").eval()
    expected = recomputed_logprobs(fresh, found.prompt_ids, found.token_ids, 1.0)
    assert found.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    await planner.close()


def test_an_adapter_that_is_missing_or_pickled_is_refused(tmp_path: Path) -> None:
    base = LocalBackbone(make_model(), TOKENIZER, device="cpu")
    folder = write_adapter(tmp_path / "P", 0)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    for bad in (folder, tmp_path / "nothing"):
        with pytest.raises(WeightsMissing, match=bad.name):
            base.with_adapter(bad)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    base = LocalBackbone(make_model(hidden_size=96), TOKENIZER, device="cpu")
    with pytest.raises(WeightsMissing, match="does not fit the model"):
        base.with_adapter(write_adapter(tmp_path / "P", 0))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"init_lora_weights": "pissa_niter_4"}, "'pissa_niter_4' changes the base model"),
        ({"init_lora_weights": "olora"}, "'olora' changes the base model"),
        ({"megatron_config": {"a": 1}, "megatron_core": "evil"}, "megatron_config names code to import"),
        ({"peft_type": "XLORA", "adapters": {"a": "elsewhere"}}, "peft_type is 'XLORA'; only LORA is supported"),
    ],
)
def test_an_adapter_that_does_more_than_add_is_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    """Over a base that other roles share: they spoke with weights that this one had changed."""
    path = write_adapter(tmp_path / "P", 0) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    base = LocalBackbone(make_model(), TOKENIZER, device="cpu")
    with pytest.raises(WeightsMissing, match=complaint):
        base.with_adapter(tmp_path / "P")


def test_an_adapters_settings_that_are_none_are_one_line(tmp_path: Path) -> None:
    (write_adapter(tmp_path / "P", 0) / "adapter_config.json").write_text("[" * 100_000)
    with pytest.raises(WeightsMissing, match=r"adapter_config\.json cannot be read"):
        LocalBackbone(make_model(), TOKENIZER, device="cpu").with_adapter(tmp_path / "P")


def test_an_end_of_turn_that_is_no_number_is_one_line() -> None:
    model = make_model()
    model.generation_config.eos_token_id = "</s>"
    with pytest.raises(WeightsMissing, match="eos_token_id is '</s>'; it must be the number of a token"):
        LocalBackbone(model, TOKENIZER, device="cpu")
