# verl and what it brings are in an environment of their own, where no type checker looks.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return, unused-ignore"
"""A rollout server for verl on a CPU, in the place of vLLM's: so that `main_ppo` runs from end to end on a tiny model.

verl imports this module in every process (VERL_USE_EXTERNAL_MODULES). As a program it trains from a folder that
`jade export-verl` wrote:

    python verl_cpu_rollout.py FOLDER OVERRIDE...
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import ray
import torch
import verl_cpu

verl_cpu.enable()

from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout  # noqa: E402
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput  # noqa: E402


class CpuServer:
    """A transformers model that samples one token after the other, without a cache: it is tiny."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.global_steps: int | None = None

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **rest: Any
    ) -> TokenOutput:
        await asyncio.sleep(0)
        ids, logprobs = self._sample(prompt_ids, sampling_params)
        return TokenOutput(token_ids=ids, log_probs=logprobs, extra_fields={"global_steps": self.global_steps})

    @torch.no_grad()
    def _sample(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> tuple[list[int], list[float]]:
        draw = torch.Generator().manual_seed(sampling_params["seed"])
        ids: list[int] = []
        logprobs: list[float] = []
        for _ in range(sampling_params["max_tokens"]):
            logits = self.model(torch.tensor([[*prompt_ids, *ids]])).logits[0, -1]
            logp = torch.log_softmax(logits / max(sampling_params["temperature"], 1e-6), -1)
            ids.append(int(torch.multinomial(logp.exp(), 1, generator=draw)))
            logprobs.append(float(logp[ids[-1]]))
            if ids[-1] == self.model.config.eos_token_id:
                break
        return ids, logprobs

    async def update(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        _, unknown = self.model.load_state_dict(weights, strict=False)
        assert not unknown, unknown
        self.global_steps = global_steps

    async def nothing(self, **how: Any) -> None:
        return None

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = nothing
    release_kv_cache = resume_kv_cache = nothing


class CpuReplica(RolloutReplica):
    async def launch_servers(self) -> None:
        server = ray.remote(CpuServer).options(name=f"cpu-server-{self.replica_rank}", max_concurrency=64)
        self.servers = [server.remote(self.model_config.path)]
        self._server_handle, self._server_address = self.servers[0], f"cpu-{self.replica_rank}"


class CpuRollout(BaseRollout):
    """The trainer's side: gives the server the weights."""

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(self, weights: Any, global_steps: int | None = None, **how: Any) -> None:
        named = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        server = ray.get_actor(f"cpu-server-{torch.distributed.get_rank()}")
        await server.update.remote(named, global_steps)


RolloutReplicaRegistry.register("vllm", lambda: CpuReplica)
_ROLLOUT_REGISTRY["vllm", "async"] = "verl_cpu_rollout.CpuRollout"

ON_A_CPU = (
    "trainer.device=cpu",
    "trainer.n_gpus_per_node=1",
    "trainer.logger=[console]",
    "trainer.save_freq=-1",
    "trainer.test_freq=-1",
    "trainer.val_before_train=False",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "critic.strategy=fsdp2",
    "critic.fsdp.dtype=float32",
    "critic.model.use_remove_padding=False",
    "+critic.model.override_config.attn_implementation=eager",
)


def main(folder: str, *overrides: str) -> None:
    import verl
    from hydra import compose, initialize_config_dir
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.utils.config import validate_config

    defaults = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose("jade", overrides=[f"hydra.searchpath=[file://{defaults}]", *ON_A_CPU, *overrides])
    validate_config(config, use_reference_policy=False, use_critic=True)
    ray.init(num_cpus=64, num_gpus=1, include_dashboard=False)
    run_ppo(config, task_runner_class=TaskRunnerV1)


if __name__ == "__main__":
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "verl_cpu_rollout"
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    main(*sys.argv[1:])
