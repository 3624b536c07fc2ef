"""A trained policy as a plain Hugging Face folder: a whole model, or an adapter in peft's form.

What is written loads in transformers, peft and vLLM without this package, and gives the same logits. Beside the weights
lies the end of the dial that the team was trained with.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import torch

from jade.backbone.local.quiet import hushed
from jade.backbone.trained import write_dial
from jade.backbone.weights import name_elsewhere, resolve_weights
from jade.config import Config, load_config
from jade.errors import ConfigError, TrainingStopped
from jade.learn.checkpoint import Checkpoints, load_weights, read_progress
from jade.learn.policy import Policy, load_policy

Dtype = Literal["float32", "bfloat16"]
TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "added_tokens.json",
)


def export_run(
    run: Path, out: Path, *, merge: bool = False, dtype: Dtype = "float32", checkpoint: str = "best"
) -> Path:
    """Write the weights of a run's best (or newest, or numbered) checkpoint to a new folder."""
    config = load_config(run / "config.toml")
    place = find_checkpoint(run, checkpoint)
    policy_config = config.learn.policy
    if not any(name.startswith("value_head") for name in _saved_names(place)):
        policy_config = policy_config.model_copy(update={"critic": "none"})
    policy = load_policy(config.backbone.model_copy(update={"device": "cpu"}), policy_config, config.seed)
    load_weights(place, policy)
    return export_policy(policy, config, out, merge=merge, dtype=dtype)


def export_policy(policy: Policy, config: Config, out: Path, *, merge: bool = False, dtype: Dtype = "float32") -> Path:
    """Write a policy's weights, and what is needed to use them, to a new folder."""
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out: {out} exists and is not empty; choose another folder")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: weights are written beside their place; give a folder by its name")
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with hushed():
        if policy.cfg.adapt == "lora" and not merge:
            _write_adapter(policy, config, partial, getattr(torch, dtype))
        else:
            _write_model(policy, config, partial, getattr(torch, dtype))
    write_dial(partial, config.reward.dial)
    shutil.rmtree(out, ignore_errors=True)
    partial.replace(out)
    return out


def find_checkpoint(run: Path, which: str) -> Path:
    """`best` (the newest where nothing was measured), `newest`, or a number."""
    checkpoints = Checkpoints(run / "checkpoints")
    newest = checkpoints.newest()
    if newest is None:
        raise TrainingStopped(f"{run} holds no checkpoint; is it a run of jade train or jade warmstart?")
    if which.isdecimal():
        newest = checkpoints.place(int(which))
    elif which == "best" and read_progress(newest).best_iteration >= 0:
        newest = checkpoints.place(read_progress(newest).best_iteration)
    if not newest.is_dir():
        kept = ", ".join(place.name for place in checkpoints.all())
        raise TrainingStopped(f"{newest} does not exist; there are {kept}")
    return newest


def _saved_names(place: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(place / "policy.safetensors", "pt") as file:
        return list(file.keys())


def _write_model(policy: Policy, config: Config, out: Path, dtype: torch.dtype) -> None:
    """The base model's folder with the policy's weights in it."""
    from transformers import AutoModelForCausalLM

    base = resolve_weights(config.backbone.model)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in policy.sampler_weights():
            own[name].copy_(weight.cpu())
    model.to(dtype).save_pretrained(out)
    for pattern in TOKENIZER_FILES:
        for path in base.glob(pattern):
            shutil.copy2(path, out / path.name)


def _write_adapter(policy: Policy, config: Config, out: Path, dtype: torch.dtype) -> None:
    """The adapter alone. It names its base as the config does, not by a path of this machine, and a shipped one as the
    hub does: peft and transformers know no shipped names, and here only the config says which base is loaded."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    # Embeddings are never resized here; peft would ask the hub for the base's vocabulary to find that out.
    weights = get_peft_model_state_dict(policy.model, save_embedding_layers=False)
    save_file(
        {name: weight.detach().to("cpu", dtype).contiguous() for name, weight in weights.items()},
        out / "adapter_model.safetensors",
        {"format": "pt"},
    )
    policy.model.peft_config["default"].save_pretrained(str(out))
    path = out / "adapter_config.json"
    settings = json.loads(path.read_text())
    base = name_elsewhere(config.backbone.model)
    path.write_text(json.dumps(settings | {"base_model_name_or_path": base}, indent=2))
