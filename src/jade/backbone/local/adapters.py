"""LoRA adapters over one base model in memory: loaded once each, switched between sub-batches (peft)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jade.backbone.trust import check_adapter
from jade.errors import BackboneFailed, WeightsMissing

PEFT_PREFIX = "base_model.model."
"""How names begin in adapter files; a model that adapters were put into has no such wrapper."""


class AdapterSet:
    """The adapters of one model. None is the bare base."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names: dict[Path, str] = {}
        self._layers: list[Any] = []
        self.active: str | None = None

    def load(self, folder: Path) -> str:
        """Put the adapter of a peft folder beside the base; the name to activate it by."""
        folder = folder.expanduser().resolve()
        if folder not in self._names:
            name = f"adapter{len(self._names)}"
            self._insert(folder, name)
            self._names[folder] = name
        return self._names[folder]

    def activate(self, name: str | None) -> None:
        if name == self.active:
            return
        for layer in self._layers:
            layer.enable_adapters(name is not None)
            if name is not None:
                layer.set_adapter(name)
        self.active = name

    def _insert(self, folder: Path, name: str) -> None:
        weights = check_adapter(folder)
        try:
            self._inject(folder, weights, name)
        except Exception as error:  # peft's complaints come in many types
            raise WeightsMissing(f"adapter {folder} does not fit the model: {error}") from error

    def _inject(self, folder: Path, weights: Path, name: str) -> None:
        from peft import PeftConfig, inject_adapter_in_model, set_peft_model_state_dict
        from peft.tuners.tuners_utils import BaseTunerLayer
        from safetensors.torch import load_file

        config = PeftConfig.from_pretrained(str(folder))
        config.inference_mode = True
        with warnings.catch_warnings():  # peft warns of several adapters, which is what is wanted here
            warnings.filterwarnings("ignore", "Already found a `peft_config`")
            inject_adapter_in_model(config, self._model, adapter_name=name)
        state = {key.removeprefix(PEFT_PREFIX): tensor for key, tensor in load_file(weights).items()}
        result: Any = set_peft_model_state_dict(self._model, state, adapter_name=name)
        if result.unexpected_keys:
            raise ValueError(f"it has weights for {result.unexpected_keys[0]}, which the model lacks")
        self._layers = [layer for layer in self._model.modules() if isinstance(layer, BaseTunerLayer)]
        self._model.to(self._model.device).eval()
        # peft switches on what it puts in; here an adapter is off until it is asked for.
        self.active = name
        self.activate(None)


@torch.no_grad()
def copy_weights(model: Any, named: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], adapter: str | None) -> None:
    """Overwrite weights in place, all or none. Names are those of the plain model, or of an adapter file."""
    held = {name.replace(".base_layer.", "."): tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    pairs = named.items() if isinstance(named, Mapping) else named
    copies = [(_target(held, name, tensor, adapter), tensor) for name, tensor in pairs]
    for target, tensor in copies:
        target.copy_(tensor)


def _target(held: Mapping[str, Tensor], name: str, tensor: Tensor, adapter: str | None) -> Tensor:
    plain = name.removeprefix(PEFT_PREFIX)
    if adapter is not None:
        for part in ("lora_A", "lora_B"):
            plain = plain.replace(f".{part}.weight", f".{part}.{adapter}.weight")
    target = held.get(plain)
    if target is None:
        raise BackboneFailed(f"weights {name!r} have no place in the model; give names as its state dict has them")
    if target.shape != tensor.shape:
        raise BackboneFailed(f"weights {name!r} have shape {tuple(tensor.shape)}, the model's {tuple(target.shape)}")
    return target
