"""One schema for everything that can be set: TOML in, dotted overrides, TOML out.

A config is frozen and checked once, when it is loaded; an ablation is a value here, never an edit of code.
Every field has its default, so an empty file is a valid config.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jade.errors import ConfigError

ROLE_CODES = ("P", "QDS", "QDP", "QR", "DS", "AG", "AS")
"""The built-in roles that have weights (retrieval is a tool and is never trained)."""


class Section(BaseModel):
    """A part of the config: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TeamConfig(Section):
    workflows: tuple[str, ...] = ()
    """The workflows the planner may choose from, printed ("QDS", "R,AG"); empty means all that the grammar allows.
    With exactly one, no planner is called."""
    child_workflows: tuple[str, ...] = ()
    """The same for sub-questions; empty means as `workflows`."""
    prompts: Path | None = None
    """A folder of `<role>.md` files that replace the shipped prompts of the same name."""
    extensions: tuple[str, ...] = ()
    """Modules or .py files with roles and tools of one's own; each has `register(team)`."""
    constrain_plans: bool = False
    """Decode plans so that they are always legal. Inference only: masking changes what is learned from."""


class SamplingConfig(Section):
    temperature: float = Field(0.0, ge=0.0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Nucleus sampling; keep 1 in training, where log-probs must be those of the full distribution."""


class BudgetConfig(Section):
    rounds: int = Field(8, ge=1)
    """Planner turns a question may take."""
    depth: int = Field(2, ge=0)
    """How deep decomposition may nest; 0 forbids it."""
    children: int = Field(4, ge=1)
    """Sub-questions one decomposition may ask; the rest are dropped, and the trace says so."""
    retrievals: int = Field(8, ge=0)
    """Searches a question may make."""
    calls: int = Field(64, ge=1)
    """Model calls a question may make."""
    tokens: int = Field(65536, ge=1)
    """Tokens, read and written, a question may use."""
    seconds: float = Field(600.0, gt=0.0)
    """Wall-clock time a question may take."""


class BackboneConfig(Section):
    model: str = "jade-135m"
    """The trained team that ships (jade-135m), its untrained base (smollm2-135m), a Hugging Face folder or name, or
    the URL of an OpenAI-compatible server."""
    adapter: Path | None = None
    """A LoRA adapter (peft folder) over the model."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: float32 on CPU, bfloat16 on a GPU."""
    threads: int = Field(0, ge=0)
    """CPU threads of torch; 0 leaves torch's own choice."""
    max_batch: int = Field(64, ge=1)
    """Requests a local model works on at once."""
    max_prompt_tokens: int = Field(3072, ge=16)
    """Longer prompts lose passages' tails, never the question."""
    inline: bool = False
    """Run the model inside the event loop: slower to react, but every batch is the same in every run."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds a remote server's key."""
    timeout_seconds: float = Field(120.0, gt=0.0)
    """For one remote call."""
    retries: int = Field(4, ge=0)
    """Further tries after a remote call failed in a way that may pass."""
    concurrency: int = Field(64, ge=1)
    """Remote calls in flight at once."""


class RetrievalConfig(Section):
    index: str = ""
    """An index folder, or the URL of a server that speaks `POST /retrieve`."""
    kind: Literal["auto", "bm25", "dense", "hybrid"] = "auto"
    """How to search an index folder; auto takes the best it holds."""
    k: int = Field(5, ge=1)
    """Passages per search."""
    timeout_seconds: float = Field(30.0, gt=0.0)
    """For one remote search."""
    retries: int = Field(3, ge=0)
    """Further tries after a remote search failed in a way that may pass."""
    threads: int = Field(0, ge=0)
    """Threads that share a batch of bm25 searches; 0 takes the machine's cores, up to 8."""
    device: str = "auto"
    """Where the encoder of a dense index runs: cpu, cuda, or auto."""
    inline: bool = False
    """Search inside the event loop: slower to react, but every batch is the same in every run."""


class RewardConfig(Section):
    alpha: float = Field(0.0, ge=0.0)
    """Price of turns: alpha * min(rounds, 3) / 3."""
    beta: float = Field(0.0, ge=0.0)
    """Price of retrievals: beta * min(retrievals, 3) / 3."""
    format_penalty: float = Field(-1.0, le=0.0)
    """Added to the reward of a step whose output was malformed, and to no other."""
    dial: float = Field(0.0, ge=0.0)
    """Above 0: alpha and beta are drawn per question from [0, dial] and told to the planner, so that one policy
    serves every budget."""


class PolicyConfig(Section):
    adapt: Literal["full", "lora"] = "full"
    """Train all weights, or low-rank adapters over frozen ones."""
    lora_rank: int = Field(16, ge=1)
    """Rank of the adapters; their scale is twice the rank."""
    lora_targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the layers that get an adapter."""
    critic: Literal["head", "separate", "none"] = "head"
    """The baseline: a value head on the shared trunk, a model of its own, or none (`group` credit)."""
    value_gradient: bool = False
    """Whether a value head on the shared trunk also shapes the trunk; a young critic's errors would disturb it."""
    tokens_per_batch: int = Field(16384, ge=64)
    """Tokens that go through the model at once."""
    recompute: bool = False
    """Recompute activations in the backward pass: slower, for models that do not fit otherwise."""
    compile: bool = False
    """Compile the layers: half a minute at the start, faster updates after it (GPU)."""


class PPOConfig(Section):
    learning_rate: float = Field(1e-6, ge=0.0)
    """Step size of the policy; 0 is the control that learns nothing."""
    critic_learning_rate: float = Field(1e-5, ge=0.0)
    """Step size of the value head or of the separate critic."""
    warmup: int = Field(0, ge=0)
    """Iterations over which the step size rises to its full value."""
    epochs: int = Field(1, ge=1)
    """Passes over one iteration's transitions."""
    minibatches: int = Field(4, ge=1)
    """Optimiser steps in one pass; every mini-batch mixes all roles."""
    clip: float = Field(0.2, gt=0.0)
    """How far the probability ratio may move before its gradient is cut."""
    value_clip: float = Field(0.5, gt=0.0)
    """The same for the value, around its prediction at rollout."""
    value_weight: float = Field(0.5, ge=0.0)
    """Weight of the value loss beside the policy's."""
    entropy_weight: float = Field(0.0, ge=0.0)
    """Weight of the entropy bonus."""
    kl_weight: float = Field(0.0, ge=0.0)
    """Weight of the divergence from the policy that the run started with."""
    gradient_clip: float = Field(1.0, gt=0.0)
    """Largest norm of the gradient."""
    weigh: Literal["token", "call", "role"] = "token"
    """What counts the same in the loss: every token, every call, or every role."""


class CreditConfig(Section):
    rule: str = "trajectory"
    """trajectory, shared, group, or `package.module:function` for a rule of one's own."""
    gamma: float = Field(1.0, gt=0.0, le=1.0)
    """Discount from one action token to the next."""
    lam: float = Field(1.0, ge=0.0, le=1.0)
    """Decay of the advantage estimate: 1 trusts returns, 0 trusts values."""
    group_std: bool = False
    """`group` only: divide by the group's standard deviation as well."""
    normalise: Literal["none", "batch", "role"] = "batch"
    """Advantages to mean 0 and deviation 1: not at all, over the batch, or within each role."""


class GuardConfig(Section):
    max_kl: float = Field(0.5, gt=0.0)
    """Nats a token by which the policy may leave the one that sampled, seen in an update's last mini-batch."""
    min_entropy: float = Field(0.0, ge=0.0)
    """Nats a token below which the policy is called frozen."""
    max_entropy: float = Field(8.0, gt=0.0)
    """Nats a token above which the policy is called noise."""
    max_failed: float = Field(0.5, ge=0.0, le=1.0)
    """Share of the questions that may end in an error (a dead retriever, a model that raises)."""
    malformed_rise: float = Field(0.3, gt=0.0)
    """Rise of the malformed share over its recent mean that is called an explosion."""
    collapse_share: float = Field(0.98, gt=0.0, le=1.0)
    """Share of one workflow that is called a collapse when the reward drops as well."""
    collapse_drop: float = Field(0.05, ge=0.0)
    """Drop of the reward below its recent mean that makes it one."""
    window: int = Field(5, ge=1)
    """Iterations that the recent means look back on."""
    shrink: float = Field(0.5, gt=0.0, lt=1.0)
    """What the step size is multiplied by after a rollback."""
    patience: int = Field(3, ge=1)
    """Rollbacks in a row that stop the run."""


class LearnConfig(Section):
    questions: tuple[Path, ...] = ()
    """Question files (.jsonl, .jsonl.gz) to train on."""
    dev: tuple[Path, ...] = ()
    """Question files to measure on while training; never trained on."""
    held_out: tuple[Path, ...] = ()
    """Question files kept for tests: none of them may be trained on, which is checked before any work."""
    overlap: Literal["refuse", "drop"] = "refuse"
    """Training questions that also stand in `dev` or `held_out`: refuse to start, or leave out all that share a
    question, a hop or its evidence with them."""
    per_file: int = Field(0, ge=0)
    """At most this many questions from each file; 0 takes all."""
    balance: bool = False
    """Draw evenly from the question files, whatever their sizes."""
    iterations: int = Field(100, ge=0)
    """Rollouts and updates, alternating."""
    questions_per_iteration: int = Field(128, ge=1)
    """Questions rolled out before each update."""
    rollouts: int = Field(1, ge=1)
    """Traces of each question; `group` credit needs two or more."""
    concurrency: int = Field(512, ge=1)
    """Questions in flight at once."""
    temperature: float = Field(1.0, gt=0.0)
    """Of the rollouts; `sampling` is for measuring and answering."""
    train_roles: tuple[str, ...] = ROLE_CODES
    """Roles whose calls are trained; the others keep working and learn nothing."""
    dev_every: int = Field(10, ge=1)
    """Iterations between measurements on `dev`."""
    dev_questions: int = Field(200, ge=1)
    """Questions of each dev file that are measured."""
    checkpoint_every: int = Field(5, ge=1)
    """Iterations between checkpoints."""
    keep: int = Field(2, ge=2)
    """Checkpoints kept beside the best one; a rollback may need the last but one."""
    traces_every: int = Field(10, ge=1)
    """Iterations between those whose traces are written to the run folder."""
    tensorboard: bool = False
    """Also write TensorBoard events (needs the package `tensorboard`)."""
    credit: CreditConfig = CreditConfig()
    policy: PolicyConfig = PolicyConfig()
    ppo: PPOConfig = PPOConfig()
    guard: GuardConfig = GuardConfig()


class WarmstartConfig(Section):
    questions: tuple[Path, ...] = ()
    """Question files whose gold data becomes examples."""
    held_out: tuple[Path, ...] = ()
    """Question files for dev and test: examples that share a question, a hop or its evidence with them are dropped."""
    per_file: int = Field(0, ge=0)
    """At most this many questions from each file; 0 takes all."""
    passes: int = Field(1, ge=1)
    """How often the oracle team works each question, each time by another plan where several are good."""
    best_traces: tuple[Path, ...] = ()
    """Trace files of the team itself; what it did in its best ones becomes examples too (rejection sampling)."""
    min_outcome: float = Field(0.8, ge=0.0, le=1.0)
    """Outcome from which a trace of the team's own is one of the best."""
    roles: tuple[str, ...] = ROLE_CODES
    """Roles that get examples."""
    per_role: int = Field(0, ge=0)
    """At most this many examples of one role from one dataset; 0 takes all."""
    repeat: int = Field(1, ge=1)
    """How often at most the examples of a rare role are repeated, to bring it up to the median role."""
    epochs: int = Field(2, ge=1)
    """Passes over the examples."""
    learning_rate: float = Field(2e-4, gt=0.0)
    """Peak step size; it rises over the first 5 % of the steps and falls linearly to a tenth."""
    examples_per_step: int = Field(64, ge=1)
    """Examples in one optimiser step."""
    checkpoint_every: int = Field(200, ge=1)
    """Optimiser steps between checkpoints."""


class EvalConfig(Section):
    concurrency: int = Field(64, ge=1)
    """Questions in flight at once."""
    search_turns: int = Field(4, ge=1)
    """Searches that the one-policy baseline (search-r1) may make before it has to answer."""
    check_index: bool = True
    """Refuse an index in which none of the benchmark's evidence pages is found."""
    give_up_after: int = Field(50, ge=1)
    """Questions failing in a row that stop the run: a server that is down is not a wrong answer."""


class ServeConfig(Section):
    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs keys."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    keys_file: Path | None = None
    """A file of API keys, one a line, each with a name before it if you like (`alice 8f3a…`)."""
    keys_env: str = "JADE_API_KEYS"
    """The environment variable that holds further keys, separated by commas."""
    requests_per_minute: int = Field(60, ge=0)
    """Questions one key may ask in a minute; 0 is no limit. Without keys nobody is told apart or limited."""
    max_body_bytes: int = Field(1_000_000, ge=1024)
    """Larger requests are refused (413)."""
    max_question_chars: int = Field(4000, ge=1)
    """Longer questions are refused (413)."""
    max_context_turns: int = Field(8, ge=0)
    """Earlier turns of a conversation that are kept, the latest ones."""
    concurrency: int = Field(64, ge=1)
    """Questions worked at once."""
    queue: int = Field(256, ge=0)
    """Questions that may wait for their turn; further ones are refused (503)."""
    answer_seconds: float = Field(120.0, gt=0.0)
    """Time from the request to the answer, waiting included, after which a question is given up (504)."""
    read_seconds: float = Field(10.0, gt=0.0)
    """Time a client may take to send its request (408)."""
    drain_seconds: float = Field(130.0, ge=0.0)
    """Time that running questions are given when the server is told to stop."""
    cors_origins: tuple[str, ...] = ()
    """Web pages of other origins that may call the API; empty: none."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests on a loopback address may carry beside its own; keeps foreign web pages out."""
    traces: Path | None = None
    """A file that every answered question's trace is added to."""
    keep_traces: int = Field(256, ge=1)
    """Latest traces that are kept in memory and shown in the viewer."""
    runs: tuple[Path, ...] = ()
    """Run folders and trace files that the viewer shows beside."""


class Config(Section):
    """Everything. `learn` and `eval` sections live beside their rooms' first use below."""

    seed: int = 0
    """Of everything that is drawn."""
    team: TeamConfig = TeamConfig()
    sampling: SamplingConfig = SamplingConfig()
    budget: BudgetConfig = BudgetConfig()
    backbone: BackboneConfig = BackboneConfig()
    roles: dict[str, BackboneConfig] = Field(default_factory=dict)
    """Roles that speak with a backbone of their own, by code; the others share `backbone`."""
    retrieval: RetrievalConfig = RetrievalConfig()
    reward: RewardConfig = RewardConfig()
    learn: LearnConfig = LearnConfig()
    warmstart: WarmstartConfig = WarmstartConfig()
    eval: EvalConfig = EvalConfig()
    serve: ServeConfig = ServeConfig()


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, apply `section.field=value` overrides, check everything once."""
    data = _read(path) if path else {}
    for override in overrides:
        _apply(data, override)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("; ".join(_complaints(error, path))) from None


def dump_config(config: Config) -> str:
    """The config as TOML that loads to the same config."""
    return "\n".join(_toml_lines(config.model_dump(mode="json", exclude_none=True), ())) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {path} is not TOML: {error}") from None


def _apply(data: dict[str, Any], override: str) -> None:
    name, separator, text = override.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"override {override!r} is not of the form section.field=value")
    *sections, field = name.strip().split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"override {override!r}: {section} is not a section")
    data[field] = _value(text.strip())


def _value(text: str) -> Any:
    """TOML if it is TOML (numbers, booleans, lists, quoted strings), otherwise the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _complaints(error: ValidationError, path: Path | None) -> Iterator[str]:
    where = f"{path}: " if path else ""
    for problem in error.errors():
        field = ".".join(str(part) for part in problem["loc"])
        given = "" if problem["type"] in ("missing", "extra_forbidden") else f" (given: {problem['input']!r})"
        message = "no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
        yield f"{where}{field}: {message}{given}"


def _toml_lines(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    if path and plain:
        yield f"\n[{'.'.join(map(_toml_key, path))}]"
    for key, value in plain.items():
        yield f"{key} = {_toml_value(value)}"
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _toml_lines(value, (*path, key))


def _toml_key(key: str) -> str:
    """Bare where TOML allows it; the code of a role from outside need not be ASCII."""
    return key if key.isascii() and key.isalnum() else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
