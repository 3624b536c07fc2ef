"""What of a model's or an adapter's folder is safe to load: safetensors and settings, never pickle, never code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jade.errors import WeightsMissing

CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways to begin a LoRA by which something is taken out of the weights that it stands over."""


def checked_folder(path: Path) -> Path:
    """The folder itself, if it holds a model in a form that is safe to load."""
    if not (path / "config.json").is_file():
        raise WeightsMissing(f"model folder {path} has no config.json; give a Hugging Face model folder")
    _require_no_code(path / "config.json")
    if any(path.glob("*.safetensors")):
        _require_own_shards(path)
        return path
    if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
        raise WeightsMissing(f"model folder {path} holds pickled weights only; convert them to safetensors first")
    raise WeightsMissing(f"model folder {path} holds no *.safetensors")


def _require_no_code(path: Path) -> None:
    """An attention may be named that is code on a hub: transformers would fetch and run it."""

    def look(part: dict[str, object]) -> None:
        for key, value in part.items():
            if key.endswith("attn_implementation") and "/" in str(value):
                raise WeightsMissing(f"{path}: {key} names code on a hub, which is never run; remove it")

    try:
        json.loads(path.read_bytes(), object_hook=look)
    except (ValueError, RecursionError) as error:
        raise WeightsMissing(f"{path} is not JSON ({error})") from None


def _require_own_shards(path: Path) -> None:
    """A list of shards may name any file, and that would be loaded as what it is: a pickle, or another's weights."""
    listed = path / "model.safetensors.index.json"
    if not listed.is_file():
        return
    try:
        shards = json.loads(listed.read_bytes())["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsMissing(f"{listed} is no list of shards ({type(error).__name__}: {error})") from None
    foreign = next((name for name in shards if not re.fullmatch(r"[\w.-]+\.safetensors", str(name))), None)
    if foreign is not None:
        raise WeightsMissing(f"{listed} names {foreign!r}, which is no *.safetensors file of its folder")


def check_adapter(folder: Path) -> Path:
    """The weights of a peft folder."""
    folder = folder.expanduser()
    weights = folder / "adapter_model.safetensors"
    if not (folder / "adapter_config.json").is_file() or not weights.is_file():
        raise WeightsMissing(
            f"adapter {folder} has no adapter_config.json and adapter_model.safetensors; give a peft folder "
            "(pickled adapters are not loaded)"
        )
    _require_plain_lora(folder / "adapter_config.json")
    return weights


def _require_plain_lora(path: Path) -> None:
    """A LoRA that only adds: other kinds have the base's own weights changed, which others may share, or name code."""
    try:
        config = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise WeightsMissing(f"{path} cannot be read ({type(error).__name__}: {error})") from None
    if config.get("peft_type") != "LORA":
        raise WeightsMissing(f"{path}: peft_type is {config.get('peft_type')!r}; only LORA is supported")
    begun = str(config.get("init_lora_weights", True)).lower()
    if begun.startswith(CHANGES_BASE):
        raise WeightsMissing(f"{path}: init_lora_weights {begun!r} changes the base model; save it as a plain LoRA")
    if config.get("megatron_config"):
        raise WeightsMissing(f"{path}: megatron_config names code to import, which is never done")
