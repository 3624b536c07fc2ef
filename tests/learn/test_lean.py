from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from learn_builders import make_transition

from jade.config import PolicyConfig
from jade.learn import policy
from jade.learn.batches import Batch, make_batch
from jade.learn.layers import attention
from jade.learn.layers.lean import LeanAdapter, LeanAttention, LeanNorm, make_lean
from jade.learn.policy import Policy

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


def make_model(kind: str, **settings: object) -> Any:
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**SIZES | settings)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.05)
    model.set_attn_implementation(attention.register())
    return model


def kinds_of(trunk: torch.nn.Module) -> set[type]:
    lean = (LeanNorm, LeanAdapter, LeanAttention)
    return {kind for part in trunk.modules() for kind in lean if isinstance(part, kind)}


def some_batch() -> Batch:
    return make_batch([make_transition(num_tokens=n) for n in (3, 9, 4)], range(3), share=True)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
@pytest.mark.parametrize("rank", [0, 4])
def test_lean_layers_say_and_teach_the_same(kind: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for lean in (False, True):
        monkeypatch.setattr(policy, "make_lean", make_lean if lean else lambda trunk: None)
        cfg = PolicyConfig(adapt="lora" if rank else "full", lora_rank=max(1, rank), critic="none")
        model = make_model(kind)
        if rank:
            model = policy._with_new_adapter(model, cfg)
            torch.manual_seed(4)
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.1)
        held = Policy(model, cfg)
        found = kinds_of(held.trunk)
        logp_N = held(some_batch()).logp_N
        (logp_N * torch.linspace(-1, 2, len(logp_N))).sum().backward()
        said.append([logp_N.detach(), *(weight.grad for _, weight in held.policy_parameters())])
        expected = {LeanNorm, LeanAttention} | ({LeanAdapter} if rank else set())
        assert found == (expected if lean else set())
    for one, other in zip(*said, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("Qwen3", {}, {LeanNorm}),  # norms inside attention
        ("Gemma", {}, {LeanAttention}),  # norms that multiply by one plus the weight
        ("Mistral", {"sliding_window": 16}, {LeanNorm}),
        ("Mistral", {"sliding_window": None}, {LeanNorm, LeanAttention}),
    ],
)
def test_layers_of_another_kind_stay_as_they_are(kind: str, settings: dict[str, object], expected: set[type]) -> None:
    trunk = make_model(kind, **settings).get_decoder()
    make_lean(trunk)
    assert kinds_of(trunk) == expected


def test_an_adapter_with_dropout_stays_as_it_is() -> None:
    from peft import LoraConfig, get_peft_model

    model: Any = get_peft_model(make_model("Llama"), LoraConfig(r=2, lora_dropout=0.1, target_modules=["q_proj"]))
    trunk = model.get_base_model().get_decoder()
    make_lean(trunk)
    assert kinds_of(trunk) == {LeanNorm}


def test_adapted_layers_still_know_their_files(tmp_path: Path) -> None:
    held = Policy(policy._with_new_adapter(make_model("Llama"), PolicyConfig(adapt="lora")), PolicyConfig(adapt="lora"))
    held.model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
