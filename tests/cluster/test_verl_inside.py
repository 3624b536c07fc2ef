# verl and what it brings are in an environment of their own, where no type checker looks.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return, unused-ignore"
"""Inside verl 0.9: its settings, its post-processing, its estimator and its losses, with our team's transitions.

Needs verl's environment: `make verl-env`, then `make verl-test`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("verl", reason="verl is not in this environment; make verl-env, then make verl-test")
pytestmark = pytest.mark.filterwarnings("ignore")

from learn_builders import make_step, make_trace  # noqa: E402
from learn_runs import make_config, merge  # noqa: E402

from jade.api.documents import index_documents  # noqa: E402
from jade.backbone.chat import ChatFormat  # noqa: E402
from jade.cluster.verl_export import Machines, export_verl  # noqa: E402
from jade.cluster.verl_loop import StepOutput, at_step, check_version, outputs_of  # noqa: E402
from jade.cluster.vllm import load_tokenizer  # noqa: E402
from jade.config import Config  # noqa: E402
from jade.corpus.world import make_world, write_world  # noqa: E402
from jade.errors import ConfigError  # noqa: E402
from jade.types import Answer, Malformed, Trace  # noqa: E402


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a run over a small world."""
    place = tmp_path_factory.mktemp("verl")
    write_world(make_world(50, 20, 0), place / "world")
    index_documents([place / "world" / "pages"], place / "index")
    train, dev = (str(place / "world" / f"questions.{split}.jsonl") for split in ("train", "dev"))
    return {
        "retrieval": {"index": str(place / "index")},
        "learn": {"questions": [train], "dev": [dev], "questions_per_iteration": 2},
    }


@pytest.fixture(scope="module")
def folder(tiny_model: Path, world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `jade export-verl` writes for a tiny model."""
    return export_verl(make_config(tiny_model, world), tmp_path_factory.mktemp("out") / "run", Machines(1, 2, 1))


def composed(folder: Path) -> Any:
    """verl's settings with those of a folder over them, as `launch.sh` has verl read them."""
    import verl
    from hydra import compose, initialize_config_dir

    defaults = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose("jade", overrides=[f"hydra.searchpath=[file://{defaults}]"])


@pytest.fixture(scope="module")
def settings(folder: Path) -> Any:
    return composed(folder)


LESS_USUAL: dict[str, dict[str, Any]] = {
    "by call, with a reference": {
        "ppo": {"weigh": "call", "kl_weight": 0.1, "warmup": 3, "entropy_weight": 0.01},
        "rollouts": 2,
        "temperature": 0.8,
    },
    "recomputed": {"policy": {"recompute": True}},
}


@pytest.mark.parametrize("kind", LESS_USUAL)
def test_less_usual_settings_are_accepted_too(
    tiny_model: Path, world: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    config = make_config(tiny_model, merge(world, {"learn": LESS_USUAL[kind], "sampling": {"temperature": 0.5}}))
    found = composed(export_verl(config, tmp_path / "out", Machines(2, 2, 2)))
    validate_config(found, use_reference_policy=need_reference_policy(found), use_critic=need_critic(found))
    assert need_reference_policy(found) == (config.learn.ppo.kl_weight > 0)


def test_adapters_are_asked_for_in_verls_words(tiny_model: Path, world: dict[str, Any], tmp_path: Path) -> None:
    """verl checks adapters by asking vLLM, which is not here; that the names are its own is seen by composing."""
    config = make_config(tiny_model, merge(world, {"learn": {"policy": {"adapt": "lora", "lora_rank": 4}}}))
    model = composed(export_verl(config, tmp_path / "out", Machines())).actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha) == (4, 8)
    assert "q_proj" in model.target_modules


def test_the_exported_settings_are_ones_that_verl_accepts(settings: Any) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    assert need_critic(settings)
    validate_config(settings, use_reference_policy=need_reference_policy(settings), use_critic=True)
    assert settings.actor_rollout_ref.actor.optim.lr == 1e-3
    assert settings.actor_rollout_ref.rollout.n == 1


def test_verls_dataset_reads_our_questions(settings: Any, folder: Path, tiny_model: Path) -> None:
    from verl.utils.dataset.rl_dataset import RLHFDataset

    rows = RLHFDataset([str(folder / "train.parquet")], load_tokenizer(str(tiny_model)), settings.data)
    assert len(rows) > 10
    assert rows[1]["index"] == 1
    assert rows[1]["agent_name"] == "jade"
    assert rows[1]["raw_prompt"][0]["content"] == rows[1]["extra_info"]["question"]


@pytest.mark.parametrize("found", ["0.8.3", "0.10.0", "1.0"])
def test_another_version_of_verl_is_refused(found: str) -> None:
    check_version("0.9.4")
    with pytest.raises(ConfigError, match=f"verl {found} is installed"):
        check_version(found)


class ScriptedServers:
    """verl's server client, answering every prompt with the same text."""

    def __init__(self, chat: ChatFormat, text: str) -> None:
        self.ids = list(chat.encode_reply(text))
        self.asked: list[dict[str, Any]] = []

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append({"ids": prompt_ids, **sampling_params})
        ids = self.ids[: sampling_params["max_tokens"]]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"global_steps": 3})


@pytest.fixture
def loop(settings: Any, folder: Path, tiny_model: Path) -> Any:
    import hydra.utils
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    tokenizer = load_tokenizer(str(tiny_model))
    return hydra.utils.instantiate(
        config=OmegaConf.load(folder / "agent_loop.yaml")[0],
        trainer_config=DictConfigWrap(settings),
        server_manager=ScriptedServers(ChatFormat(tokenizer), "<answer>Ada</answer>"),
        tokenizer=tokenizer,
        processor=None,
        hf_model_type="llama",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(settings.data),
        tools=ToolListWrap([]),
    )


SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
QUESTION = {"index": 4, "id": "q", "question": "Who?", "answers": ["Ada"], "dataset": "world", "measured": False}


async def test_the_team_works_a_question_with_verls_servers_and_gives_an_output_for_each_call(loop: Any) -> None:
    outputs = await loop.run(SAMPLING, extra_info=QUESTION, raw_prompt=[], uid="u", session_id=0, global_steps=3)
    asked = loop.server_manager.asked
    assert len(outputs) == len(asked) > 1
    assert all(output.prompt_ids == call["ids"] for output, call in zip(outputs, asked, strict=True))
    assert all(output.response_ids == loop.server_manager.ids for output in outputs)
    assert all(len(call["ids"]) <= 400 for call in asked)
    assert len({call["seed"] for call in asked}) == len(asked)
    # The planner's answer is no plan and is penalised; the answerer's is right.
    rewards = {output.extra_fields["role"]: output.own_reward for output in outputs}
    assert rewards["AG"] == 1.0
    assert rewards["P"] == 0.0
    assert outputs[-1].extra_fields["reward_extra_info"]["acc"] == 1.0


async def test_an_outcome_of_ones_own_is_what_verl_pays(loop: Any) -> None:
    loop.desk = replace(loop.desk, measure=lambda traces: [0.25 for _ in traces])
    outputs = await loop.run(SAMPLING, extra_info=QUESTION, raw_prompt=[], uid="u", session_id=0, global_steps=3)
    assert {output.extra_fields["role"]: output.own_reward for output in outputs}["AG"] == 0.25


def test_importing_the_loop_leaves_the_row_that_agent_loop_yaml_wrote() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    assert "jade" not in _agent_loop_registry, "verl would instantiate it without its config"


async def test_a_question_of_which_nothing_can_be_learned_is_still_counted(loop: Any) -> None:
    async def fail(**how: Any) -> None:
        raise RuntimeError("the server is gone")

    loop.server_manager.generate = fail
    (output,) = await loop.run(SAMPLING, extra_info=QUESTION, raw_prompt=[], uid="u", session_id=0)
    assert output.response_mask == [0]
    assert output.own_reward == 0.0
    assert output.extra_fields["reward_extra_info"]["failed"] == 1.0


def test_the_first_step_of_a_ramp_costs_nothing_and_the_last_all() -> None:
    config = Config.model_validate({"reward": {"alpha": 0.4, "ramp": 4}})
    # verl's first step is 1; a loop that is not told the step is at the beginning.
    assert [at_step(config, step).reward.alpha for step in (0, 1, 3, 5, 6)] == pytest.approx([0.0, 0.0, 0.2, 0.4, 0.4])


def penalised_trace() -> Trace:
    """Three calls of which the second is malformed; the answer is right."""
    steps = [
        make_step(1, "P", ids=(4, 5, 6)),
        make_step(2, "QR", ids=(7, 8), action=Malformed("no query")),
        make_step(3, "AG", ids=(9,), action=Answer("Ada")),
    ]
    return make_trace(steps)


def config_of(rule: str) -> Config:
    return Config.model_validate({"learn": {"credit": {"rule": rule}}})


OWN = {"shared": [1.0, 0.0, 1.0], "trajectory": [0.0, 0.0, 1.0]}


@pytest.fixture(scope="module")
def queue() -> Iterator[Any]:
    """verl's transfer queue, as its trainer starts it."""
    import ray
    import transfer_queue

    # Its actors claim CPUs of their own; these are names for what is shared, and more than the machine has.
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    try:
        transfer_queue.init()
        yield transfer_queue
        transfer_queue.close()
    finally:
        ray.shutdown()


def put_through_verl(outputs: Sequence[Any], uid: str, queue: Any) -> list[torch.Tensor]:
    """The rewards that verl's trainer would read after verl's own post-processing."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    worker_class = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = object.__new__(worker_class)
    worker.processor, worker.distillation_enabled, worker.reward_loop_worker_handles = None, False, None
    fields = {"uid": uid, "session_id": 0, "global_steps": 1, "raw_prompt": []}
    asyncio.run(worker._agent_loop_postprocess(list(outputs), False, **fields))
    keys = [f"{uid}_0_{number}" for number in range(len(outputs))]
    found = queue.kv_batch_get(keys=keys, partition_id="train", select_fields=["rm_scores", "rollout_log_probs"])
    return list(found["rm_scores"].unbind())


@pytest.mark.parametrize("rule", OWN)
def test_every_steps_own_reward_survives_verls_post_processing(rule: str, queue: Any) -> None:
    outputs = outputs_of(penalised_trace(), config_of(rule))
    scores = put_through_verl(outputs, f"ours-{rule}", queue)
    assert [float(row[-1]) for row in scores] == pytest.approx(OWN[rule])
    assert [float(row.sum()) for row in scores] == pytest.approx(OWN[rule])


def test_without_our_output_verl_copies_the_last_reward_onto_all(queue: Any) -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

    outputs = outputs_of(penalised_trace(), config_of("shared"))
    plain = [AgentLoopOutput(**output.model_dump(exclude={"own_reward"})) for output in outputs]
    assert [float(row[-1]) for row in put_through_verl(plain, "plain", queue)] == [1.0, 1.0, 1.0]


def test_an_outputs_reward_is_its_own_whatever_is_written_to_it() -> None:
    outputs = outputs_of(penalised_trace(), config_of("shared"))
    for output in outputs:
        assert isinstance(output, StepOutput)
        output.reward_score = 9.0
    assert [float(output.as_dict()["rm_scores"][-1]) for output in outputs] == [1.0, 0.0, 1.0]
    assert all("own_reward" not in output.as_dict() for output in outputs)


def test_verls_actor_and_critic_take_updates_on_two_cpu_processes(tiny_model: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("verl_cpu.py")), str(tiny_model)]
    around = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    workers = [
        subprocess.Popen([*program, str(tmp_path / "losses")], env=around | {"RANK": str(rank)}) for rank in range(2)
    ]
    try:
        assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
    one, other = (json.loads((tmp_path / f"losses.{rank}").read_text()) for rank in range(2))
    assert one == other, "the loss is that of the batch of both"
    assert [len(passed) for passed in one["actor"]] == [2, 2, 2]
    assert sum(one["actor"][2]) < sum(one["actor"][0])
    assert sum(one["critic"][2]) < 0.2 * sum(one["critic"][0])


def test_verls_main_trains_the_team_from_end_to_end(folder: Path, tmp_path: Path) -> None:
    """Its trainer, transfer queue, agent loop workers, FSDP actor and critic, weights to the server; a CPU for all."""
    program = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("verl_cpu_rollout.py")), str(folder)]
    log = tmp_path / "log"
    with log.open("w") as out:
        done = subprocess.run(program, stdout=out, stderr=subprocess.STDOUT, timeout=900, cwd=tmp_path, check=False)
    text = log.read_text()
    assert done.returncode == 0, text[-3000:]
    steps = {number: dict(re.findall(r"(\S+):(-?[0-9.e-]+)", line)) for number, line in STEP.findall(text)}
    assert sorted(steps) == ["1", "2", "3"]
    for figures in steps.values():
        # A model with random weights writes nothing that can be read, so every call is penalised: the last one once,
        # those before it for what comes after them as well. verl's trainer would read one number for all.
        assert float(figures["critic/rewards/max"]) == -1.0
        assert float(figures["critic/rewards/min"]) <= -2.0
        # Log-probs of the sampling are the actor's own: the server speaks with the weights of the last update.
        assert abs(float(figures["actor/ppo_kl"])) < 0.02
        assert float(figures["actor/grad_norm"]) > 0


STEP = re.compile(r"step:(\d+) - (.*)")
