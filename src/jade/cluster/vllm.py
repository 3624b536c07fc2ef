"""vLLM as the rollout engine: it samples with its own token ids and log-probs, and takes new weights in between.

- A server that cannot give token ids and log-probs, that reads prompts by other tokens than the model being trained,
  or that does not let its weights be changed is refused before any work, in one line.
- Whole models reach a server by its own calls: `/pause` (what is under way is finished), `/collective_rpc` with
  `reload_weights` from a folder that both sides see, `/resume`, which is called whatever happens in between.
- Adapters reach it by `/v1/load_lora_adapter`, each under a name of its own, so that nothing cached under the last
  one can be mistaken for it; the last one is then unloaded.
- A generation carries the version of the weights that it was asked under.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from jade.backbone.chat import ChatFormat
from jade.backbone.remote import RemoteBackbone
from jade.backbone.weights import resolve_weights
from jade.cluster.vllm_control import ADAPTERS, MODELS, VllmControl
from jade.config import BackboneConfig, Config, LearnConfig
from jade.errors import BackboneFailed, ConfigError
from jade.learn.export import export_policy
from jade.learn.policy import Policy
from jade.retrieval.open import open_retriever
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Generation, Prompt, Sampling

PROBE = Prompt("probe", "Answer briefly.", "What is the capital of France?")
SHARD_BYTES = 4 << 30
"""Weights are written in files of about this size, so that a big model is never in memory twice."""


class VllmServer(RemoteBackbone):
    """One server, which must give the ids and log-probs of what it sampled."""

    def __init__(
        self, config: BackboneConfig, chat: ChatFormat, timeout_seconds: float, backoff_seconds: float = 0.5
    ) -> None:
        super().__init__(config, backoff_seconds)
        self._chat = chat
        self.control = VllmControl(self._url.removesuffix("/v1"), self._key, timeout_seconds)
        self.num_busy = 0
        self.version = 0
        self._adapter = ""

    @property
    def url(self) -> str:
        return self.control.url

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        version = self.version  # asked under this one, even if another has come by the time it answers
        self.num_busy += 1
        try:
            found = await super().generate(self._chat.plain(prompt), sampling)
        finally:
            self.num_busy -= 1
        if not found.token_ids:
            raise BackboneFailed(
                f"{self.url} gives no token ids and log-probs for what it samples, and nothing can be learned without; "
                "rollouts need vLLM 0.10.2 or later (return_token_ids)"
            )
        return replace(found, policy_version=version)

    async def check(self, routes: Mapping[str, str]) -> None:
        """Raises unless the server can do all that a training run will ask of it."""
        found = await self.generate(PROBE, Sampling(temperature=1.0, max_tokens=1))
        if found.prompt_ids != self._chat.encode_all([PROBE])[0]:
            raise ConfigError(
                f"learn.vllm.urls: {self.url} reads a prompt by other tokens than backbone.model; serve the same model"
            )
        await self.control.require(routes)

    async def take_model(self, folder: Path, version: int) -> None:
        """The weights of a folder, between two rollouts."""
        await self.control.reload(folder)
        self.version = version

    async def take_adapter(self, folder: Path, version: int) -> None:
        """An adapter's folder; its name becomes the model that is asked."""
        # The new one first: a call that comes meanwhile must find an adapter under the name that it asks for.
        await self.control.load_adapter(folder.name, folder)
        last, self._adapter = self._adapter, folder.name
        self._model, self.version = folder.name, version
        if last:
            await self.control.unload_adapter(last)


class VllmFleet:
    """Servers of one model as one backbone; whoever has least to do is asked next."""

    def __init__(self, servers: Sequence[VllmServer], folder: Path, config: Config) -> None:
        self.servers = servers
        self._folder = folder
        self._config = config
        self._held: Path | None = None

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        return await min(self.servers, key=lambda server: server.num_busy).generate(prompt, sampling)

    async def follow(self, policy: Policy, version: int) -> None:
        """Speak as the policy does from now on: all servers, or an error."""
        folder = self._folder / f"jade-{version}-{secrets.token_hex(4)}"
        if policy.cfg.adapt == "lora":
            export_policy(policy, self._config, folder, dtype="bfloat16" if self._in_bfloat16 else "float32")
            await _all(server.take_adapter(folder, version) for server in self.servers)
        else:
            dtype = torch.bfloat16 if self._in_bfloat16 else torch.float32
            await asyncio.to_thread(write_weights, policy.sampler_weights(), folder, dtype)
            await _all(server.take_model(folder, version) for server in self.servers)
        self._forget(folder)

    async def close(self) -> None:
        """Leaves the folder of the weights that the servers now hold: a restarted server may need it."""
        await _all(server.close() for server in self.servers)

    @property
    def _in_bfloat16(self) -> bool:
        return self._config.backbone.dtype != "float32"

    def _forget(self, folder: Path) -> None:
        last, self._held = self._held, folder
        if last is not None:
            shutil.rmtree(last, ignore_errors=True)


@asynccontextmanager
async def open_vllm_crew(config: Config) -> AsyncIterator[Crew]:
    """The team of a training run whose calls go to vLLM servers, all of them found fit."""
    fleet = make_fleet(config)
    retriever = open_retriever(config.retrieval)
    try:
        await check_fleet(fleet, config)
        yield Crew(build_team(config.team), Cast(fleet), retriever, config.budget, config.sampling, config.retrieval.k)
    finally:
        await fleet.close()
        await retriever.close()


def _temperatures(learn: LearnConfig) -> list[tuple[str, float]]:
    own = ((f"learn.role_temperature.{role}", value) for role, value in learn.role_temperature.items())
    return [("learn.temperature", learn.temperature), *own]


def make_fleet(config: Config, backoff_seconds: float = 0.5) -> VllmFleet:
    """The servers that a config names; what can be refused without asking them is refused here."""
    vllm = config.learn.vllm
    if vllm.folder is None:
        raise ConfigError("learn.vllm.folder is not set: name a folder that this machine and the servers both see")
    for setting, temperature in _temperatures(config.learn):
        if temperature != 1.0:
            raise ConfigError(
                f"{setting}: {temperature} with learn.vllm.urls; servers report log-probs of the raw distribution, "
                "which is the one sampled from at temperature 1 only"
            )
    if config.roles:
        raise ConfigError(
            f"roles.{min(config.roles)}: a role with a backbone of its own cannot go with learn.vllm.urls"
        )
    chat = ChatFormat(load_tokenizer(config.backbone.model))
    over_url = (config.backbone.model_copy(update={"model": url, "adapter": None}) for url in vllm.urls)
    servers = [VllmServer(one, chat, vllm.timeout_seconds, backoff_seconds) for one in over_url]
    return VllmFleet(servers, vllm.folder, config)


def load_tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve_weights(model), local_files_only=True, trust_remote_code=False)


async def check_fleet(fleet: VllmFleet, config: Config) -> None:
    """Every server, before any work."""
    routes = ADAPTERS if config.learn.policy.adapt == "lora" else MODELS
    await _all(server.check(routes) for server in fleet.servers)


def write_weights(named_tensors: Iterable[tuple[str, Tensor]], folder: Path, dtype: torch.dtype) -> None:
    """Tensors as safetensors files, there whole or not at all."""
    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(parents=True)
    for number, shard in enumerate(_shards(named_tensors, dtype), start=1):
        save_file(shard, partial / f"model-{number:05d}.safetensors", {"format": "pt"})
    partial.replace(folder)


def _shards(named_tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Iterator[dict[str, Tensor]]:
    shard: dict[str, Tensor] = {}
    num_bytes = 0
    for name, tensor in named_tensors:
        # A copy: a tensor that is already of this type would share the learner's memory while the learner goes on.
        shard[name] = tensor.detach().to("cpu", dtype, copy=True).contiguous()
        num_bytes += shard[name].nbytes
        if num_bytes >= SHARD_BYTES:
            yield shard
            shard, num_bytes = {}, 0
    if shard:
        yield shard


async def _all(doing: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, whatever becomes of each, then raise what went wrong first: no server is left half told."""
    ends = await asyncio.gather(*doing, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
