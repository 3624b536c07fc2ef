"""Merge a LoRA adapter into the model it was trained on, and write the whole as one folder.

A merged model decodes faster than a model with an adapter beside it, and everything that takes a model folder takes it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from jade.backbone.local.quiet import hushed, peft_hushed

MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json")


def merge_adapter(base: Path, adapter: Path, out: Path) -> None:
    """`out` gets the merged weights in the base's own precision, and the base's tokenizer."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    with hushed(), peft_hushed():
        model: Any = AutoModelForCausalLM.from_pretrained(
            base, dtype="auto", use_safetensors=True, local_files_only=True
        )
        stored = model.dtype
        # Summed in float32: the adapter's small steps would be lost in a half-precision sum.
        adapted = PeftModel.from_pretrained(model.to(torch.float32), str(adapter), local_files_only=True)
        adapted.merge_and_unload().to(stored).save_pretrained(out)
    weights = {path for pattern in MODEL_FILES for path in base.glob(pattern)}
    for path in base.iterdir():
        if path.is_file() and path not in weights:
            shutil.copy2(path, out / path.name)
