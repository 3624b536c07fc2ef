"""`jade export-verl`: a training config becomes a folder from which verl 0.9 trains the same team.

    config.toml        our settings, read by the agent loop
    jade.yaml          verl's settings: what differs from its own defaults
    agent_loop.yaml    where verl finds the team
    train.parquet      questions to train on; val.parquet: questions to measure on
    launch.sh          the command

What verl cannot do as the config says it is refused by the setting's name, never changed in silence.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from jade.backbone.open import is_url
from jade.backbone.weights import SHIPPED, TRAINED, resolve_weights
from jade.cluster.verl_rewards import check_credit
from jade.config import Config, dump_config
from jade.errors import ConfigError
from jade.learn.check import check_training
from jade.team.roles import RoleSpec
from jade.team.team import Team
from jade.types import Question

AGENT = "jade"
TRAIN, VAL = "train.parquet", "val.parquet"
LOOP = "jade.cluster.verl_loop.JadeAgentLoop"
AGGREGATES = {"token": "token-mean", "call": "seq-mean-token-mean"}
"""What counts the same in the loss, in verl's words."""
NO_DUAL_CLIP = 1e6
"""verl cuts the loss of very unlikely bad tokens at three times the advantage; this many times is never."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What verl is to use."""

    nodes: int = 1
    gpus_per_node: int = 8
    tensor_parallel: int = 1


def export_verl(config: Config, out: Path, machines: Machines) -> Path:
    """Write everything that verl needs to a new folder."""
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out: {out} exists and is not empty; choose another folder")
    _parquet()
    check_credit(config.learn)
    _check_settings(config)
    material = check_training(config)
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    train = [question for file in material.train for question in file]
    dev = [question for file in material.dev for question in file]
    # Without dev questions verl still wants a file to measure on; it is then never asked to (test_freq = -1).
    write_questions(out / TRAIN, train)
    write_questions(out / VAL, dev or train[:1], measured=True)
    (out / "config.toml").write_text(dump_config(_absolute(config)), encoding="utf-8")
    loop = [{"name": AGENT, "_target_": LOOP, "jade_config": str(out / "config.toml")}]
    (out / "agent_loop.yaml").write_text(json.dumps(loop, indent=1) + "\n", encoding="utf-8")
    settings = verl_settings(config, material.team, out, machines, measure=bool(dev))
    (out / "jade.yaml").write_text("\n".join(("defaults: [ppo_trainer, _self_]", *_yaml(settings))) + "\n")
    _write_launcher(out)
    return out


def verl_settings(config: Config, team: Team, out: Path, machines: Machines, *, measure: bool) -> dict[str, Any]:
    """verl's settings where they differ from its defaults."""
    prompt, response = config.backbone.max_prompt_tokens, longest_reply(team)
    model, batches = model_settings(config), _batches(config, prompt + response)
    return {
        "data": _data(config, out) | {"max_prompt_length": prompt, "max_response_length": response},
        "actor_rollout_ref": {
            "model": model | _adapter(config),
            "actor": batches | _actor(config),
            "rollout": _rollout(config, out, machines, prompt + response),
        },
        "critic": {"model": model} | batches | _critic(config),
        "algorithm": {
            "adv_estimator": "gae",
            "gamma": config.learn.credit.gamma,
            "lam": config.learn.credit.lam,
            # The ratio is taken against the log-probs of the sampling itself, as our own learner does.
            "rollout_correction": {"bypass_mode": True},
        },
        "trainer": _trainer(config, out, machines, measure=measure),
    }


def _data(config: Config, out: Path) -> dict[str, Any]:
    return {
        "train_files": str(out / TRAIN),
        "val_files": str(out / VAL),
        "train_batch_size": config.learn.questions_per_iteration,
        "filter_overlong_prompts": False,
        "return_raw_chat": True,
        "seed": config.seed,
    }


def _batches(config: Config, longest: int) -> dict[str, Any]:
    """What actor and critic have in common."""
    learn, ppo = config.learn, config.learn.ppo
    return {
        # verl counts rows, and a question is as many rows as its team made calls: about as many steps as calls.
        "ppo_mini_batch_size": learn.questions_per_iteration,
        "ppo_epochs": ppo.epochs,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": max(learn.policy.tokens_per_batch, longest),
        "shuffle": True,
        "data_loader_seed": config.seed,
        "loss_agg_mode": AGGREGATES[ppo.weigh],
        "grad_clip": ppo.gradient_clip,
    }


def _critic(config: Config) -> dict[str, Any]:
    ppo = config.learn.ppo
    return {"optim": {"lr": ppo.critic_learning_rate, "weight_decay": 0.0}, "cliprange_value": ppo.value_clip}


def _trainer(config: Config, out: Path, machines: Machines, *, measure: bool) -> dict[str, Any]:
    learn = config.learn
    return {
        "use_v1": True,
        "nnodes": machines.nodes,
        "n_gpus_per_node": machines.gpus_per_node,
        "total_training_steps": learn.iterations,
        "total_epochs": 1_000_000,
        "test_freq": learn.dev_every if measure else -1,
        "val_before_train": measure,
        "save_freq": learn.checkpoint_every,
        "default_local_dir": str(out / "checkpoints"),
        "project_name": "jade",
        "experiment_name": out.name,
        "logger": ["console", "tensorboard"],
    }


def _actor(config: Config) -> dict[str, Any]:
    ppo = config.learn.ppo
    return {
        "clip_ratio": ppo.clip,
        "clip_ratio_low": ppo.clip,
        "clip_ratio_high": ppo.clip,
        "clip_ratio_c": NO_DUAL_CLIP,
        "entropy_coeff": ppo.entropy_weight,
        "use_kl_loss": ppo.kl_weight > 0,
        "kl_loss_coef": ppo.kl_weight,
        "kl_loss_type": "low_var_kl",
        "optim": {"lr": ppo.learning_rate, "lr_warmup_steps": ppo.warmup or -1, "weight_decay": 0.0},
    }


def _rollout(config: Config, out: Path, machines: Machines, longest: int) -> dict[str, Any]:
    return {
        "name": "vllm",
        "n": config.learn.rollouts,
        "temperature": config.learn.temperature,
        "top_p": 1.0,
        "calculate_log_probs": True,
        "max_model_len": longest,
        "tensor_model_parallel_size": machines.tensor_parallel,
        "agent": {"default_agent_loop": AGENT, "agent_loop_config_path": str(out / "agent_loop.yaml")},
        "val_kwargs": {
            "temperature": config.sampling.temperature,
            "top_p": config.sampling.top_p,
            "do_sample": config.sampling.temperature > 0,
        },
    }


def model_settings(config: Config) -> dict[str, Any]:
    """Where the weights are. A hub's name stays a name; what we ship becomes its folder here."""
    name = config.backbone.model
    local = name in SHIPPED or name in TRAINED or Path(name).expanduser().exists()
    path = str(resolve_weights(name).resolve()) if local else name
    return {"path": path, "enable_gradient_checkpointing": config.learn.policy.recompute}


def _adapter(config: Config) -> dict[str, Any]:
    policy = config.learn.policy
    if policy.adapt == "full":
        return {}
    return {
        "lora_rank": policy.lora_rank,
        "lora_alpha": 2 * policy.lora_rank,
        "target_modules": list(policy.lora_targets),
    }


def longest_reply(team: Team) -> int:
    return max(member.max_tokens for member in team.members.values() if isinstance(member, RoleSpec))


def write_questions(path: Path, questions: Sequence[Question], *, measured: bool = False) -> None:
    """Questions in verl's columns. The prompt is for its logs alone: the team writes its own."""
    arrow, parquet = _parquet()
    rows = [question_row(question, index, measured) for index, question in enumerate(questions)]
    parquet.write_table(arrow.Table.from_pylist(rows), path)


def _parquet() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ConfigError(
            "verl reads parquet files, and pyarrow is not installed; pip install 'jade-team[verl]'"
        ) from None


def question_row(question: Question, index: int, measured: bool = False) -> dict[str, Any]:
    """`measured`: verl does not tell an agent loop whether it trains or measures, so the row does."""
    return {
        "data_source": question.dataset or AGENT,
        "agent_name": AGENT,
        "prompt": [{"role": "user", "content": question.text}],
        "reward_model": {"style": "rule", "ground_truth": json.dumps(question.answers, ensure_ascii=False)},
        "extra_info": {
            "index": index,
            "id": question.id,
            "question": question.text,
            "answers": list(question.answers),
            "dataset": question.dataset,
            "measured": measured,
        },
    }


def question_of(extra_info: Mapping[str, Any]) -> Question:
    """The question that `question_row` wrote."""
    return Question(
        id=str(extra_info["id"]),
        text=str(extra_info["question"]),
        answers=tuple(str(answer) for answer in extra_info["answers"]),
        dataset=str(extra_info["dataset"]),
    )


def _check_settings(config: Config) -> None:
    learn = config.learn
    if learn.ppo.weigh not in AGGREGATES:
        raise ConfigError(f"learn.ppo.weigh: {learn.ppo.weigh!r} has no form in verl; choose {', '.join(AGGREGATES)}")
    if learn.policy.critic == "none":
        raise ConfigError("learn.policy.critic: verl's PPO needs a critic, which is then a model of its own")
    if learn.role_temperature:
        raise ConfigError("learn.role_temperature: verl looks back on all calls at one temperature; leave it out")
    if learn.ppo.role_entropy:
        raise ConfigError("learn.ppo.role_entropy: verl has one entropy bonus for all calls; leave it out")
    if learn.ppo.role_weight:
        raise ConfigError("learn.ppo.role_weight: verl weighs all calls alike; leave it out")
    if learn.ppo.decay != "none":
        raise ConfigError(f"learn.ppo.decay: {learn.ppo.decay!r} has no form in verl; set none")
    if learn.balance:
        raise ConfigError("learn.balance: verl draws from all questions alike; leave it out, or even the files out")
    if config.roles:
        raise ConfigError(f"roles.{min(config.roles)}: in verl all roles share the model that is trained; leave it out")
    if config.backbone.adapter is not None:
        raise ConfigError("backbone.adapter: merge it first (jade export --merge) and name the merged folder")


def _absolute(config: Config) -> Config:
    """With an index, prompts, roles and a measure of one's own that are found from any folder."""
    index, team, reward = config.retrieval.index, config.team, config.reward
    if not is_url(index):
        index = str(Path(index).resolve())
    prompts = None if team.prompts is None else team.prompts.resolve()
    extensions = tuple(str(Path(name).resolve()) if name.endswith(".py") else name for name in team.extensions)
    return config.model_copy(
        update={
            "retrieval": config.retrieval.model_copy(update={"index": index}),
            "reward": reward.model_copy(update={"outcome": _absolute_function(reward.outcome)}),
            "team": team.model_copy(update={"prompts": prompts, "extensions": extensions}),
        }
    )


def _absolute_function(name: str) -> str:
    """`file.py:function` from any folder; whatever else has a name keeps it."""
    file, separator, function = name.rpartition(":")
    return f"{Path(file).resolve()}{separator}{function}" if file.endswith(".py") else name


def _yaml(settings: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Nested tables; every leaf in JSON, which is YAML as well."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield f"{'  ' * depth}{key}:"
            yield from _yaml(value, depth + 1)
        else:
            # A bare `n` is a word for no in YAML.
            yield f"{'  ' * depth}{json.dumps(key) if key == 'n' else key}: {_leaf(value)}"


def _leaf(value: Any) -> str:
    """YAML reads 1e-06 as text unless there is a point in it."""
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    return json.dumps(value, ensure_ascii=False)


def _write_launcher(out: Path) -> None:
    path = out / "launch.sh"
    path.write_text(
        "#!/usr/bin/env bash\n"
        "# Trains the team with verl 0.9 where verl[vllm] and jade-team are installed; in a Ray cluster run it on its\n"
        "# head, with this folder and the index at the same paths on every node. Further settings may follow, e.g.\n"
        "#   ./launch.sh trainer.nnodes=2 actor_rollout_ref.rollout.gpu_memory_utilization=0.7\n"
        "set -euo pipefail\n"
        f'exec python3 -m verl.trainer.main_ppo --config-dir {shlex.quote(str(out))} --config-name jade "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
