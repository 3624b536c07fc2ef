# verl and what it brings are in an environment of their own, where no type checker looks.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return, unused-ignore"
"""verl on a CPU: a platform plug-in, and a program that trains verl's own actor and critic on our transitions.

RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python verl_cpu.py MODEL OUT.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform


class CpuModule(ModuleType):
    """`torch.cpu` with the memory figures that verl logs, all of them 0."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        nothing = {"mem_get_info": (0, 0), "get_device_name": "CPU"}.get(name, 0)
        return getattr(torch.cpu, name) if hasattr(torch.cpu, name) else lambda *args, **how: nothing


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CpuModule("cpu")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "VERL_CPU_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    profiler_stop = profiler_start

    def ray_resource_name(self) -> str:
        return "GPU"  # which Ray is told to have, though there is none

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def enable() -> None:
    """Make verl take the CPU for its accelerator, and its FSDP engines run there."""
    set_platform(PlatformCPU())
    average_by_hand()
    attend_plainly()
    name_gloo_once()
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

    EngineRegistry.register("language_model", ["fsdp", "fsdp2"], "cpu")(FSDPEngineWithLMHead)
    EngineRegistry.register("value_model", ["fsdp", "fsdp2"], "cpu")(FSDPEngineWithValueHead)


def average_by_hand() -> None:
    """gloo cannot average; it can add, and the caller can divide."""
    plain = torch.distributed.all_reduce

    def all_reduce(tensor: torch.Tensor, op: Any = torch.distributed.ReduceOp.SUM, group: Any = None) -> None:
        if op != torch.distributed.ReduceOp.AVG:
            plain(tensor, op=op, group=group)
            return
        plain(tensor, group=group)
        tensor /= torch.distributed.get_world_size(group)

    setattr(torch.distributed, "all_reduce", all_reduce)  # noqa: B010


def name_gloo_once() -> None:
    """verl asks for one backend for the CPU and one for its device, which are the same here."""
    plain = torch.distributed.init_process_group

    def init_process_group(backend: str = "gloo", **how: Any) -> None:
        plain("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **how)

    setattr(torch.distributed, "init_process_group", init_process_group)  # noqa: B010


def attend_plainly() -> None:
    """verl loads a critic with flash attention, whatever it is told; there is none for a CPU."""
    from transformers import AutoModelForTokenClassification as Critic

    plain = Critic.from_pretrained

    def from_pretrained(*args: Any, **how: Any) -> Any:
        return plain(*args, **how | {"attn_implementation": "eager"})

    setattr(Critic, "from_pretrained", from_pretrained)  # noqa: B010


def make_worker(model: str, kind: str) -> Any:
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    engine = FSDPEngineConfig(
        strategy="fsdp2",
        dtype="float32",
        model_dtype="fp32",
        use_dynamic_bsz=True,
        max_token_len_per_gpu=512,
        infer_max_token_len_per_gpu=512,
        use_torch_compile=False,
    )
    config = TrainingWorkerConfig(
        model_type=kind,
        model_config=HFModelConfig(
            path=model, use_remove_padding=False, override_config={"attn_implementation": "eager"}
        ),
        engine_config=engine,
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, weight_decay=0.0, clip_grad=1.0, total_training_steps=3),
    )
    worker = TrainingWorker(config)
    worker.reset()
    return worker


def make_data(rank: int) -> Any:
    """Four transitions of different lengths for each process."""
    from tensordict import TensorDict

    draw = torch.Generator().manual_seed(rank)
    lengths = [(5, 3), (9, 2), (4, 6), (7, 1)]
    prompts, responses = (
        [torch.randint(3, 300, (n,), generator=draw) for n in column] for column in zip(*lengths, strict=True)
    )
    rows = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": [torch.cat(pair) for pair in zip(prompts, responses, strict=True)],
        "position_ids": [torch.arange(sum(pair)) for pair in lengths],
        "response_mask": [torch.ones(n, dtype=torch.long) for _, n in lengths],
        "loss_mask": [torch.ones(n, dtype=torch.long) for _, n in lengths],
        **{
            name: [torch.randn(n, generator=draw) * 0.1 + start for _, n in lengths]
            for name, start in {"old_log_probs": -5.8, "advantages": 0.0, "returns": 0.5, "values": 0.0}.items()
        },
    }
    nested = {name: torch.nested.as_nested_tensor(row, layout=torch.jagged) for name, row in rows.items()}
    return TensorDict(nested, batch_size=len(lengths))


def train(worker: Any, data: Any) -> list[float]:
    """One pass, an optimiser step for each of its two mini-batches; gives their losses."""
    from verl.utils import tensordict_utils as tu

    batch = data.clone()
    tu.assign_non_tensor(
        batch, mini_batch_size=4, global_batch_size=4, epochs=1, temperature=1.0, calculate_entropy=False
    )
    found = worker.train_mini_batch(batch)
    return [float(loss) for loss in tu.get(found, "metrics")["loss"]]


def main(model: str, out: str) -> None:
    from hydra.utils import instantiate  # noqa: F401  (verl's configs are made through it)
    from verl.workers.config import FSDPActorConfig, FSDPCriticConfig
    from verl.workers.utils.losses import ppo_loss, value_loss

    enable()
    torch.distributed.init_process_group("gloo")
    actor, critic = make_worker(model, "language_model"), make_worker(model, "value_model")
    actor.set_loss_fn(
        partial(ppo_loss, config=FSDPActorConfig(rollout_n=1, ppo_mini_batch_size=4, use_dynamic_bsz=True))
    )
    critic.set_loss_fn(partial(value_loss, config=FSDPCriticConfig(ppo_mini_batch_size=4, use_dynamic_bsz=True)))
    rank = torch.distributed.get_rank()
    data = make_data(rank)
    found = {"actor": [train(actor, data) for _ in range(3)], "critic": [train(critic, data) for _ in range(3)]}
    Path(f"{out}.{rank}").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
