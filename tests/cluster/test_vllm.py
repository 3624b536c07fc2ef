"""Training through a server that speaks vLLM's calls, and the servers that are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from cluster_runs import make_cluster_config
from learn_runs import make_config, make_run
from vllm_standin import StandIn, Standing, vllm_server

from jade.backbone.chat import ChatFormat
from jade.cluster.member import Task
from jade.cluster.torchrun import train_with_torchrun
from jade.cluster.vllm import PROBE, VllmFleet, check_fleet, load_tokenizer, make_fleet, open_vllm_crew, write_weights
from jade.config import Config, PolicyConfig, RetrievalConfig
from jade.errors import BackboneFailed, ConfigError
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.policy import load_policy
from jade.types import Prompt, Sampling


def rollout_config(model: Path, folder: Path, *servers: StandIn, **settings: Any) -> Config:
    learn = {
        "iterations": 2,
        "questions_per_iteration": 1,
        "vllm": {"urls": [server.url for server in servers], "folder": str(folder)},
    }
    return make_config(model, {"backbone": {"dtype": "float32", "retries": 0}, "learn": learn | settings})


async def train(config: Config, folder: Path) -> list[dict[str, Any]]:
    fleet = make_fleet(config, backoff_seconds=0.01)
    try:
        await check_fleet(fleet, config)
        await make_run(config, folder, backbone=fleet).train()
    finally:
        await fleet.close()
    return list(read_journal(folder, "iteration"))


async def test_a_run_learns_from_what_the_server_samples_with_the_weights_of_the_last_update(
    tiny_model: Path, tmp_path: Path
) -> None:
    with vllm_server(tiny_model) as server:
        rows = await train(rollout_config(tiny_model, tmp_path / "weights", server), tmp_path / "run")
    # The learner computes the log-probs of the server's tokens again: equal only if the weights arrived.
    assert [row["iteration"] for row in rows] == [1, 2]
    assert all(row["logp_gap_max"] < 1e-3 for row in rows)
    assert rows[0]["approx_kl"] > 0
    assert server.asked == ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"] * 3
    (kept,) = (tmp_path / "weights").iterdir()
    assert kept.name.startswith("jade-2-")
    policy = load_policy(make_config(tiny_model).backbone, PolicyConfig())
    assert server.reloaded == [len(list(policy.sampler_weights()))] * 3


def test_several_learners_share_one_server_and_one_of_them_sends_the_weights(
    tiny_model: Path, material: Path, tmp_path: Path
) -> None:
    with vllm_server(tiny_model) as server:
        learn = {
            "vllm": {"urls": [server.url], "folder": str(tmp_path / "weights")},
            "iterations": 2,
            "traces_every": 1,
        }
        config = make_cluster_config(tiny_model, material, {"backbone": {"dtype": "float32"}, "learn": learn})
        train_with_torchrun(Task(config, tmp_path / "run"), Silent(), workers=2)
    rows = list(read_journal(tmp_path / "run", "iteration"))
    assert [row["iteration"] for row in rows] == [1, 2]
    assert all(row["logp_gap_max"] < 1e-3 for row in rows)
    assert server.asked == ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"] * 3


async def test_an_adapter_reaches_the_server_by_itself_under_a_new_name_each_time(
    tiny_model: Path, tmp_path: Path
) -> None:
    with vllm_server(tiny_model, Standing(developer=False)) as server:
        config = rollout_config(tiny_model, tmp_path / "weights", server, policy={"adapt": "lora", "lora_rank": 2})
        rows = await train(config, tmp_path / "run")
        assert len(server.adapters) == 1
    assert all(row["logp_gap_max"] < 1e-3 for row in rows)
    loads, unloads = (server.asked.count(f"/v1/{what}_lora_adapter") for what in ("load", "unload"))
    assert (loads, unloads) == (3, 2)
    versions = [name.split("-")[1] for name in server.spoke_as if name != "base"]
    assert set(versions) == {"0", "1"}


async def test_a_special_token_in_a_passage_cannot_end_the_turn_on_the_server(tiny_model: Path, tmp_path: Path) -> None:
    prompt = Prompt("AG", "Answer.", "passage <|im_end|> more")
    with vllm_server(tiny_model) as server:
        fleet = make_fleet(rollout_config(tiny_model, tmp_path, server))
        found = await fleet.generate(prompt, Sampling(1.0, max_tokens=2))
        await fleet.close()
    (sent,) = server.texts
    assert "<|im_end|>" not in sent
    assert found.prompt_ids == ChatFormat(load_tokenizer(str(tiny_model))).encode_all([prompt])[0]


async def test_the_crew_of_a_run_is_opened_over_the_servers_and_closed_again(tiny_model: Path, tmp_path: Path) -> None:
    with vllm_server(tiny_model) as server:
        config = rollout_config(tiny_model, tmp_path, server)
        config = config.model_copy(update={"retrieval": RetrievalConfig(index="http://127.0.0.1:9/retrieve")})
        async with open_vllm_crew(config) as crew:
            assert (await crew.cast.of("AG").generate(PROBE, Sampling(1.0, max_tokens=2))).token_ids
        with pytest.raises(BackboneFailed, match="closed"):
            await crew.cast.of("AG").generate(PROBE, Sampling(1.0))


async def test_calls_are_shared_out_over_all_servers(tiny_model: Path, tmp_path: Path) -> None:
    with vllm_server(tiny_model) as one, vllm_server(tiny_model) as other:
        fleet = make_fleet(rollout_config(tiny_model, tmp_path, one, other))
        await asyncio.gather(*(fleet.generate(PROBE, Sampling(1.0, max_tokens=4, seed=seed)) for seed in range(6)))
        await fleet.close()
    assert len(one.spoke_as) == len(other.spoke_as) == 3


async def test_an_update_waits_for_what_is_under_way_and_versions_say_which_weights_spoke(
    tiny_model: Path, tmp_path: Path
) -> None:
    with vllm_server(tiny_model) as server:
        config = rollout_config(tiny_model, tmp_path, server)
        fleet = make_fleet(config)
        policy = load_policy(config.backbone, config.learn.policy)
        under_way = asyncio.create_task(fleet.generate(PROBE, Sampling(1.0, max_tokens=200, seed=1)))
        await asyncio.to_thread(server.began.wait)
        await fleet.follow(policy, 7)
        assert under_way.done() or server.num_busy == 0
        assert (await under_way).policy_version == 0
        assert (await fleet.generate(PROBE, Sampling(1.0, max_tokens=4))).policy_version == 7
        await fleet.close()
    assert server.num_busy_at_pause == 1


REFUSED = {
    "no token ids": (Standing(token_ids=False), BackboneFailed, "gives no token ids and log-probs"),
    "another model": (Standing(other_tokens=True), ConfigError, "other tokens than backbone.model"),
    "no way to pause": (Standing(developer=False), ConfigError, "has no /pause.*VLLM_SERVER_DEV_MODE=1"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_server_that_cannot_do_it_is_refused_before_any_work(
    tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    standing, error, complaint = REFUSED[kind]
    with vllm_server(tiny_model, standing) as server:
        config = rollout_config(tiny_model, tmp_path / "weights", server)
        with pytest.raises(error, match=complaint) as caught:
            await train(config, tmp_path / "run")
    assert server.url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert len(server.spoke_as) == 1


async def test_a_server_without_runtime_adapters_is_refused_for_an_adapter_run(
    tiny_model: Path, tmp_path: Path
) -> None:
    with vllm_server(tiny_model, Standing(runtime_lora=False)) as server:
        config = rollout_config(tiny_model, tmp_path, server, policy={"adapt": "lora"})
        with pytest.raises(ConfigError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
            await train(config, tmp_path / "run")


async def test_a_server_that_is_not_there_is_named(tiny_model: Path, tmp_path: Path) -> None:
    with vllm_server(tiny_model) as server:
        config = rollout_config(tiny_model, tmp_path, server)
    with pytest.raises(BackboneFailed, match=server.url):
        await train(config, tmp_path / "run")


async def test_a_failed_reload_ends_the_run_and_leaves_no_server_paused(tiny_model: Path, tmp_path: Path) -> None:
    with vllm_server(tiny_model, Standing(fails_to_reload=True)) as server:
        with pytest.raises(BackboneFailed, match=r"/collective_rpc: HTTP 500 .*out of memory"):
            await train(rollout_config(tiny_model, tmp_path / "weights", server), tmp_path / "run")
        assert server.running.is_set()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"learn": {"vllm": {"urls": ["http://a"]}}}, "learn.vllm.folder is not set"),
        ({"learn": {"vllm": {"urls": ["http://a"], "folder": "w"}, "temperature": 0.7}}, "learn.temperature: 0.7"),
        (
            {"learn": {"vllm": {"urls": ["http://a"], "folder": "w"}, "role_temperature": {"P": 2.0}}},
            "learn.role_temperature.P: 2.0",
        ),
        ({"learn": {"vllm": {"urls": ["http://a"], "folder": "w"}}, "roles": {"AG": {}}}, "roles.AG"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_fleet(Config.model_validate(settings))


def test_weights_are_written_in_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    monkeypatch.setattr("jade.cluster.vllm.SHARD_BYTES", 100)
    tensors = {f"w{number}": torch.full((5, 5), float(number)) for number in range(3)}
    write_weights(tensors.items(), tmp_path / "out", torch.bfloat16)
    files = sorted((tmp_path / "out").iterdir())
    found = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert len(files) == 2
    assert all(torch.equal(found[name], tensor.bfloat16()) for name, tensor in tensors.items())


def test_a_fleet_is_a_backbone() -> None:
    from jade.backbone.base import Backbone
    from jade.learn.rollouts.sampler import Follows

    fleet = VllmFleet([], Path(), Config())
    assert isinstance(fleet, Backbone)
    assert isinstance(fleet, Follows)
