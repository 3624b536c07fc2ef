"""The one policy behind all roles, as the learner holds it: float32 weights, bfloat16 arithmetic on a GPU.

Trained are all weights or low-rank adapters; the baseline is a value head on the shared trunk, a critic of its own,
or nothing. It says of given tokens how likely they are, how undecided it was, and what it expected to earn.

Shapes: T = tokens of a packed batch, N = its action tokens, H = hidden width, V = vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jade.backbone.local.backbone import load_model, pick_device
from jade.backbone.local.quiet import peft_hushed
from jade.backbone.trust import check_adapter
from jade.backbone.weights import resolve_weights
from jade.config import BackboneConfig, PolicyConfig
from jade.errors import ConfigError, WeightsMissing
from jade.learn.batches import Batch
from jade.learn.layers import attention
from jade.learn.layers.attention import Packing
from jade.learn.layers.fused import FusedTrunk, can_fuse
from jade.learn.layers.lean import make_lean
from jade.learn.layers.likelihood import token_likelihood
from jade.learn.loss import Now
from jade.learn.ranks import num_ranks
from jade.learn.shards import whole

UNSUPPORTED = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings by which a model bends its logits after the projection; such models are refused rather than mistrained."""


class Policy(nn.Module):
    model: Any
    critic: nn.Module | None
    value_head: nn.Linear | None

    def __init__(self, model: nn.Module, cfg: PolicyConfig) -> None:
        super().__init__()
        self.model = model
        self.cfg = cfg
        # Before the critic is copied from it, so that both are lean.
        make_lean(self.trunk)
        self.critic = copy.deepcopy(self.trunk) if cfg.critic == "separate" else None
        self.value_head = None if cfg.critic == "none" else _zero_head(self.causal.config.hidden_size)
        trunks = (self.trunk, self.critic) if cfg.fuse and not cfg.recompute else ()
        self._fused = [fused for trunk in trunks if trunk is not None and (fused := FusedTrunk.of(trunk))]

    @property
    def causal(self) -> Any:
        """The language model itself, with its adapters inside if it has any."""
        return self.model.get_base_model() if hasattr(self.model, "peft_config") else self.model

    @property
    def trunk(self) -> nn.Module:
        decoder: nn.Module = self.causal.get_decoder()
        return decoder

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, batch: Batch, temperature: float | Tensor = 1.0, entropy_gradient: bool = False) -> Now:
        """What the policy says of the batch's action tokens."""
        trunk_NH = self._hidden(self.trunk, batch)
        logp_N, entropy_N = token_likelihood(
            trunk_NH,
            self.causal.get_output_embeddings().weight,
            batch.target_N,
            temperature=temperature,
            entropy_gradient=entropy_gradient,
            fuse=self.cfg.fuse,
        )
        return Now(logp_N, entropy_N, self._value(trunk_NH, batch))

    def _hidden(self, trunk: Any, batch: Batch) -> Tensor:
        """The states from which the action tokens are predicted: one place before each."""
        device = batch.id_T.device
        for fused in self._fused_on(device):
            if fused.trunk is trunk:
                return fused.states(batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            embedded = trunk.get_input_embeddings()(batch.id_T[None])
            # The stream that the layers add to is kept as small as the sampler's.
            stream = embedded.to(torch.bfloat16) if device.type == "cuda" else embedded
            hidden_1TH: Tensor = trunk(
                inputs_embeds=stream,
                position_ids=batch.position_T[None],
                use_cache=False,
                jade_packing=Packing.of(batch),
            ).last_hidden_state
        return hidden_1TH[0].index_select(0, batch.state_N)

    def _fused_on(self, device: torch.device) -> list[FusedTrunk]:
        """Trunks that have a faster way there. Sharded weights are whole only inside the layers' own calls."""
        return self._fused if num_ranks() == 1 and can_fuse(device) else []

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """While no weight changes: one optimiser step's pieces, or a look back. Gradients are whole when it ends."""
        with ExitStack() as stack:
            for fused in self._fused:
                stack.enter_context(fused.unmoved())
            yield

    def _value(self, trunk_NH: Tensor, batch: Batch) -> Tensor | None:
        if self.value_head is None:
            return None
        if self.critic is not None:
            seen_NH = self._hidden(self.critic, batch)
        else:
            seen_NH = trunk_NH if self.cfg.value_gradient else trunk_NH.detach()
        value_N1: Tensor = self.value_head(seen_NH.float())
        return value_N1[:, 0].clone()  # not a view: sharded weights hang their hooks on what comes out

    def drop_critic(self) -> None:
        """From here on nothing is said of values, and a critic of its own takes no memory."""
        self.critic = self.value_head = None
        self._fused = [fused for fused in self._fused if fused.trunk is self.trunk]

    def policy_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What the policy's own step size moves."""
        yield from ((name, p) for name, p in self.named_parameters() if p.requires_grad and not _is_critics(name))

    def critic_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from ((name, p) for name, p in self.named_parameters() if p.requires_grad and _is_critics(name))

    @torch.no_grad()
    def sampler_weights(self) -> Iterator[tuple[str, Tensor]]:
        """What a sampler must copy to speak as this policy does, by the plain model's names; adapters are merged."""
        if self.cfg.adapt == "full":
            yield from ((name, whole(weight)) for name, weight in self.causal.named_parameters())
            return
        for name, layer in self.causal.named_modules():
            if hasattr(layer, "get_delta_weight"):
                yield f"{name}.weight", whole(layer.base_layer.weight + layer.get_delta_weight("default"))


def load_policy(backbone: BackboneConfig, cfg: PolicyConfig, seed: int = 0) -> Policy:
    """The policy that a backbone's weights begin with. The seed draws the adapters' first values."""
    torch.manual_seed(seed)  # the same in every process of a run: all must begin with the same adapters
    model = load_plain_model(resolve_weights(backbone.model))
    if backbone.adapter is not None:
        model = _with_adapter(model, backbone.adapter, cfg)
    elif cfg.adapt == "lora":
        model = _with_new_adapter(model, cfg)
    policy = Policy(model, cfg)
    # Float32 products (the vocabulary's) by tensor cores: the inputs hold no more digits than those keep.
    torch.set_float32_matmul_precision("high")
    if cfg.recompute:
        _recompute(policy.causal)
    device = pick_device(backbone.device)
    if device.type == "cuda":  # kernels of our own start where the thread is; a sampler that said so may be elsewhere
        torch.cuda.set_device(device)
    return policy.to(device).train()


def load_plain_model(folder: Path) -> Any:
    """A language model in float32, with our attention."""
    model, _ = load_model(folder, torch.float32)
    model.set_attn_implementation(attention.register())
    # Packed rows hold no padding; where it is a token of the chat format too, its embedding would not be learned.
    model.get_input_embeddings().padding_idx = None
    bent = [name for name in UNSUPPORTED if getattr(model.config, name, None) not in (None, 1.0)]
    if bent:
        raise ConfigError(f"backbone.model: {folder} sets {bent[0]}, which training does not support")
    return model


def _recompute(model: Any) -> None:
    # Of two names for the same the newer: transformers has both from 5.23 on, and says so of the older.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _with_new_adapter(model: Any, cfg: PolicyConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=cfg.lora_rank, lora_alpha=2 * cfg.lora_rank, target_modules=list(cfg.lora_targets), task_type="CAUSAL_LM"
    )
    try:
        with peft_hushed():
            return get_peft_model(model, lora)
    except ValueError as error:
        raise ConfigError(f"learn.policy.lora_targets: {error}") from None


def _with_adapter(model: Any, adapter: Path, cfg: PolicyConfig) -> Any:
    from peft import PeftModel

    try:
        check_adapter(adapter)
    except WeightsMissing as error:
        raise ConfigError(f"backbone.adapter: {error}") from None
    with peft_hushed():
        adapted = PeftModel.from_pretrained(model, str(adapter), is_trainable=cfg.adapt == "lora")
    # An adapter froze what it was put on; merged into all weights it is where their own training begins.
    return adapted if cfg.adapt == "lora" else adapted.merge_and_unload().requires_grad_(True)


def _zero_head(width: int) -> nn.Linear:
    """A critic that begins by expecting nothing, so that it cannot mislead the first updates."""
    head = nn.Linear(width, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def _is_critics(name: str) -> bool:
    return name.startswith(("critic.", "value_head."))
