"""The team that ships: an adapter in the package, merged once into its base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from backbone_builders import make_model, make_tokenizer
from peft import LoraConfig, PeftModel, get_peft_model

from jade.backbone import weights
from jade.backbone.local import load_model
from jade.backbone.local_merge import merge_adapter
from jade.backbone.weights import TRAINED, TrainedTeam, file_sha256, resolve_weights
from jade.errors import WeightsMissing

IDS = torch.tensor([[1, 5, 9, 3]])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(tmp_path: Path, base: Path) -> Path:
    model, _ = load_model(base, torch.float32)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


def test_a_merged_model_speaks_as_the_model_with_its_adapter(tmp_path: Path, base: Path, adapter: Path) -> None:
    plain, _ = load_model(base, torch.float32)
    before = plain(IDS).logits
    merge_adapter(base, adapter, tmp_path / "merged")
    merged, tokenizer = load_model(tmp_path / "merged", torch.float32)
    with_adapter = PeftModel.from_pretrained(plain, str(adapter))
    torch.testing.assert_close(merged(IDS).logits, with_adapter(IDS).logits, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(merged(IDS).logits, before, atol=1e-3), "the adapter changed nothing"
    assert tokenizer.chat_template == make_tokenizer().chat_template


def test_a_trained_team_is_merged_once_into_the_cache(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ship(adapter, base, monkeypatch, file_sha256(adapter / "adapter_model.safetensors"))
    cache = tmp_path / "cache"
    folder = resolve_weights("tiny-team", cache)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve_weights("tiny-team", cache) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert list((cache / "weights").iterdir()) == [folder], "no scratch is left behind"


def test_a_damaged_team_is_named_in_one_line(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ship(adapter, base, monkeypatch, "0" * 64)
    with pytest.raises(WeightsMissing, match="weights of tiny-team are damaged"):
        resolve_weights("tiny-team", tmp_path / "cache")


@pytest.mark.parametrize("name", TRAINED)
def test_what_ships_is_whole_and_small(name: str) -> None:
    weights_file = TRAINED[name].folder(name) / "adapter_model.safetensors"
    assert file_sha256(weights_file) == TRAINED[name].sha256
    assert weights_file.stat().st_size <= 20_000_000
    # What peft and transformers load it over, where this package is not.
    settings = json.loads((weights_file.parent / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == weights.SHIPPED[TRAINED[name].base].hub


def _ship(adapter: Path, base: Path, monkeypatch: pytest.MonkeyPatch, sha256: str) -> None:
    """Put a team of our own into the table, over a base that needs no fetching."""
    monkeypatch.setitem(TRAINED, "tiny-team", TrainedTeam("tiny", sha256))
    monkeypatch.setitem(weights.SHIPPED, "tiny", weights.SHIPPED["smollm2-135m"])
    monkeypatch.setattr(TrainedTeam, "folder", lambda self, name: adapter)
    monkeypatch.setattr(weights, "_shipped", lambda *_: base)
