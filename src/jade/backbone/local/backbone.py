"""A language model in this process: continuous batching over slots, its own sampling, log-probs of what it sampled.

- The same seed draws the same tokens whatever else is in the batch (up to floating-point noise); see sampling.py for
  what the log-probs are, and constrain for `Sampling.choices`.
- The keys and values of a role's fixed prompt are computed once for each policy version.
- An error of the model is a BackboneFailed for the requests it hit; the backbone lives on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jade.backbone.local.threads import in_passing

# isort: split
import torch
from torch import Tensor

from jade.backbone.chat import ChatFormat
from jade.backbone.local.adapters import copy_weights
from jade.backbone.local.collector import resume_collector, spare_collector
from jade.backbone.local.driver import Driver, InlineDriver, ThreadDriver
from jade.backbone.local.engine import Counts, Engine, Limits
from jade.backbone.local.job import Job, Ticket
from jade.backbone.local.lane import SlotPlan
from jade.backbone.local.quiet import hushed
from jade.backbone.local.runner import Runner
from jade.backbone.progress import Progress, terminal_progress
from jade.backbone.weights import resolve_weights
from jade.config import BackboneConfig
from jade.errors import BackboneFailed, ConfigError, WeightsMissing
from jade.types import Generation, Prompt, Sampling

Weights = Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]
SWITCH_SECONDS = 0.0005
"""Every launch lets go of the interpreter's lock for a moment; a busy event loop may keep it no longer than this."""
GPU_POSITIONS = 1024
"""Positions reserved for each request on a GPU from the start; longer ones make the memory grow."""


class LocalBackbone:
    """One model, or one adapter over a model that other backbones share."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        device: str | torch.device = "auto",
        dtype: torch.dtype | None = None,
        max_batch: int = 64,
        max_prompt_tokens: int = 3072,
        threads: int = 0,
        inline: bool = False,
        prefill_tokens: int | None = None,
        steps_per_check: int | None = None,
        reports_behind: int | None = None,
        fuse: bool = True,
        capture_prefill: bool = True,
    ) -> None:
        """`model` and `tokenizer` are transformers' own; the model is moved to the device and dtype given."""
        place = pick_device(str(device))
        settle_in = functools.partial(_claim, place, threads)
        settle_in()
        on_gpu = place.type == "cuda"
        reads_at_once = prefill_tokens or (32768 if on_gpu else 4096)
        limits = Limits(
            max_batch=max_batch,
            max_prompt_tokens=max_prompt_tokens,
            prefill_tokens=reads_at_once,
            fewest_tokens=reads_at_once // 8 if on_gpu else 0,
            steps_per_check=steps_per_check or (4 if on_gpu else 1),
            plan=SlotPlan(
                num_slots=max_batch if on_gpu else 1,
                num_positions=GPU_POSITIONS if on_gpu else 1,
                reports_behind=int(on_gpu) if reports_behind is None else reports_behind,
            ),
        )

        def prepare() -> Runner:
            place_model(model, place, dtype or model.dtype)
            return Runner(model, eos_ids(model, tokenizer), fuse, capture_prefill)

        self._runner = prepare() if on_gpu or inline else in_passing(prepare)
        self.chat = ChatFormat(tokenizer)
        self._engine = Engine(self._runner, self.chat, limits)
        self._driver: Driver = InlineDriver(self._engine) if inline else ThreadDriver(self._engine, settle_in)
        self._adapter: str | None = None
        self._sharers = [self]
        if on_gpu:
            spare_collector()

    @classmethod
    def open(cls, config: BackboneConfig, progress: Progress = terminal_progress) -> LocalBackbone:
        """Load what the config names; the first time a shipped model is fetched."""
        device = pick_device(config.device)
        dtype = pick_dtype(config.dtype, device)
        load = functools.partial(load_model, resolve_weights(config.model, progress=progress), dtype)
        model, tokenizer = load() if device.type == "cuda" or config.inline else in_passing(load)
        backbone = cls(
            model,
            tokenizer,
            device=device,
            dtype=dtype,
            max_batch=config.max_batch,
            max_prompt_tokens=config.max_prompt_tokens,
            threads=config.threads,
            inline=config.inline,
            fuse=config.fuse,
        )
        if not config.adapter:
            return backbone
        adapted = backbone.with_adapter(config.adapter)
        # Nobody holds the bare one: the model is let go when the adapted one is closed.
        backbone._sharers.remove(backbone)
        return adapted

    def with_adapter(self, folder: Path) -> LocalBackbone:
        """A backbone that speaks through a LoRA adapter over this one's model, which stays in memory once."""
        if self._engine.busy:
            raise BackboneFailed(f"adapter {folder} cannot be added while requests are under way")
        return self._sharing(self._runner.adapters.load(folder))

    def without_adapter(self) -> LocalBackbone:
        """A backbone that speaks as the bare model which this one's adapter stands over."""
        return self._sharing(None)

    def _sharing(self, adapter: str | None) -> LocalBackbone:
        # Not by its constructor, which would start another engine: all of it is shared but for the adapter.
        other = object.__new__(LocalBackbone)
        other.__dict__.update(self.__dict__, _adapter=adapter)
        self._sharers.append(other)
        return other

    @property
    def policy_version(self) -> int:
        return self._engine.policy_version

    @property
    def counts(self) -> Counts:
        """What the engine has done so far (a copy)."""
        return replace(self._engine.counts)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self._require_open()
        job = Job(prompt, sampling, self._adapter, Ticket.here())
        self._driver.submit(job)
        try:
            generation: Generation = await job.ticket.future
        except BaseException:
            job.cancelled = True  # the engine frees the slot before its next step
            raise
        return generation

    async def update_weights(self, named_tensors: Weights, version: int) -> None:
        """Overwrite weights when the requests under way have ended; later ones carry `version`.

        Names are those of the model's state dict; on a backbone with an adapter also those of an adapter file, for the
        adapter's own weights. Either all tensors are taken or none. With none given, only the version changes and the
        cached prompt prefixes are dropped: what a learner needs that changed the weights of this very model in place.
        """
        self._require_open()
        ticket = Ticket.here()

        def apply() -> int:
            copy_weights(self._runner.model, named_tensors, self._adapter)
            return version

        self._driver.update(apply, ticket)
        await ticket.future

    async def close(self) -> None:
        """The model is let go when all who share it have closed."""
        if self not in self._sharers:
            return
        self._sharers.remove(self)
        if not self._sharers:
            await self._driver.close()
            if self._runner.device.type == "cuda":
                resume_collector()

    def _require_open(self) -> None:
        if self not in self._sharers:
            raise BackboneFailed("the backbone was closed")


def load_model(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Model and tokenizer of a folder of safetensors; no code that came with them is run."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain = {"trust_remote_code": False, "local_files_only": True}
    try:
        with hushed():
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True, **plain)
            tokenizer = AutoTokenizer.from_pretrained(folder, **plain)
    except Exception as error:  # a damaged folder can fail in any parser
        raise WeightsMissing(f"model folder {folder} cannot be loaded ({type(error).__name__}: {error})") from error
    if not tokenizer.encode("Who?", add_special_tokens=False):  # of some models transformers makes an empty one
        raise WeightsMissing(f"model folder {folder} has no tokenizer; save the model's own there (save_pretrained)")
    return model, tokenizer


def _claim(device: torch.device, threads: int) -> None:
    """Threads and device are settings of a thread: each that runs the model makes them."""
    if threads:
        torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))


def place_model(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Move a model, and cast its weights only: rotary frequencies are buffers, and lose long positions in bfloat16."""
    model.to(device)
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)


def eos_ids(model: Any, tokenizer: Any) -> set[int]:
    """Every token that ends a turn, by the model's and the tokenizer's word."""
    named = getattr(model.generation_config, "eos_token_id", None)
    given = named if isinstance(named, list) else [named]
    found = {token for token in (*given, tokenizer.eos_token_id) if token is not None}
    if not all(isinstance(token, int) for token in found):
        raise WeightsMissing(f"generation_config.json: eos_token_id is {named!r}; it must be the number of a token")
    return found


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"backbone.device: {name!r} is no device; give cpu, cuda or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"backbone.device: {name!r} was asked for and this torch finds no GPU; give cpu or auto")
    return torch.device("cuda", 0) if device == torch.device("cuda") else device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    return names.get(name) or (torch.bfloat16 if device.type == "cuda" else torch.float32)
