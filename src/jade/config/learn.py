"""How the team is trained by reinforcement: data, credit, policy, PPO, guard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from jade.config.section import ROLE_CODES, Part, Section
from jade.config.vllm import VllmConfig

Positive: TypeAlias = Annotated[float, Field(gt=0.0)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0.0)]


class PolicyConfig(Section):
    adapt: Literal["full", "lora"] = "full"
    """Train all weights, or low-rank adapters over frozen ones."""
    lora_rank: int = Field(16, ge=1)
    """Rank of the adapters; their scale is twice the rank."""
    lora_targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the layers that get an adapter."""
    critic: Literal["head", "separate", "none"] = "head"
    """The baseline: a value head on the shared trunk, a model of its own, or none (`group` and `branch` credit)."""
    value_gradient: bool = False
    """Whether a value head on the shared trunk also shapes the trunk; a young critic's errors would disturb it."""
    tokens_per_batch: int = Field(16384, ge=64)
    """Tokens that go through the model at once."""
    share_prompts: bool = True
    """Let calls whose prompts begin alike share that beginning in an update: the same gradient from fewer tokens."""
    recompute: bool = False
    """Recompute activations in the backward pass: slower, for models that do not fit otherwise."""
    fuse: bool = True
    """Run layers of the Llama family as a few kernels of our own, where there is a GPU and nothing is recomputed, and
    what follows from the logits of any model; off: layer by layer, with less at once in a kernel."""


class PPOConfig(Section):
    learning_rate: float = Field(1e-6, ge=0.0)
    """Step size of the policy; 0 is the control that learns nothing."""
    critic_learning_rate: float = Field(1e-5, ge=0.0)
    """Step size of the value head or of the separate critic."""
    warmup: int = Field(0, ge=0)
    """Iterations over which the step size rises to its full value."""
    decay: Literal["none", "linear"] = "none"
    """What becomes of the step size over the `iterations`: it stays, or falls evenly to a tenth."""
    epochs: int = Field(1, ge=1)
    """Passes over one iteration's transitions."""
    minibatches: int = Field(4, ge=1)
    """Optimiser steps in one pass; every mini-batch mixes all roles."""
    whole_questions: bool = False
    """Keep the calls of a question in one mini-batch: they share more of their prompts, so that an update is quicker,
    but each step sees fewer questions."""
    clip: float = Field(0.2, gt=0.0)
    """How far the probability ratio may move before its gradient is cut."""
    value_clip: float = Field(0.5, gt=0.0)
    """The same for the value, around its prediction at rollout."""
    value_weight: float = Field(0.5, ge=0.0)
    """Weight of the value loss beside the policy's."""
    entropy_weight: float = Field(0.0, ge=0.0)
    """Weight of the entropy bonus."""
    role_entropy: dict[str, NotNegative] = Field(default_factory=dict)
    """Roles with an entropy bonus of their own, by code. A planner soon writes the one plan that is best on average and
    learns no more from the others: a bonus of 0.1 to 0.4 keeps them alive until it can tell questions apart."""
    kl_weight: float = Field(0.0, ge=0.0)
    """Weight of the divergence from the policy that the run started with."""
    gradient_clip: float = Field(1.0, gt=0.0)
    """Largest norm of the gradient."""
    weigh: Literal["token", "call", "role"] = "token"
    """What counts the same in the loss: every token, every call, or every role."""
    role_weight: dict[str, NotNegative] = Field(default_factory=dict)
    """Roles that count more or less than 1 beside the others, by code. Nearly half of all calls are a planner's, whose
    rewards are the noisiest: `{ P = 0.25 }` lets the executors learn faster than it does."""


class CreditConfig(Section):
    rule: str = "trajectory"
    """trajectory, shared, group, branch, or a rule of one's own as `package.module:function` or `file.py:function`."""
    gamma: float = Field(1.0, gt=0.0, le=1.0)
    """Discount from one action token to the next."""
    lam: float = Field(1.0, ge=0.0, le=1.0)
    """Decay of the advantage estimate: 1 trusts returns, 0 trusts values."""
    group_std: bool = False
    """`group` only: divide by the group's standard deviation as well."""
    skip_even: bool = True
    """`group` and `branch`: leave a question out of the update when all its rollouts earned exactly the same, format
    included; not where a critic or a divergence would still learn from it, nor the calls of roles that have an entropy
    bonus."""
    normalise: Literal["none", "batch", "role"] = "batch"
    """Advantages to mean 0 and deviation 1: not at all, over the batch, or within each role."""


class GuardConfig(Section):
    max_kl: float = Field(0.5, gt=0.0)
    """Nats a token by which the policy may leave the one that sampled: in an update's last mini-batch before its step
    (`last_kl`), and on a sample of the calls after all steps (`kl_after`)."""
    min_entropy: float = Field(1e-4, ge=0.0)
    """Nats a token below which the policy is called frozen. Trained teams were never seen below 0.016; rollouts at a
    temperature near 0 may need less."""
    max_entropy: float = Field(8.0, gt=0.0)
    """Nats a token above which the policy is called noise."""
    max_failed: float = Field(0.5, ge=0.0, le=1.0)
    """Share of the questions that may end in an error (a dead retriever, a model that raises)."""
    max_failed_steps: float = Field(0.02, ge=0.0, le=1.0)
    """Share of the calls and searches that may fail (out of memory, say). Their questions go on by fallbacks and are
    learned from as if nothing had happened: so a few are too many. Those that a budget refuses are not counted."""
    malformed_rise: float = Field(0.3, gt=0.0)
    """Rise of the malformed share over the lowest that its recent mean has been, sudden or slow, that is called an
    explosion."""
    collapse_share: float = Field(0.98, gt=0.0, le=1.0)
    """Share of one workflow that is called a collapse when the reward drops as well."""
    collapse_drop: float = Field(0.05, ge=0.0)
    """Drop of the reward below its recent mean, or of that below the best it has been, that makes it one, where it is
    also more than three times the reward's standard error: questions differ in how hard they are."""
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
    part: Part = (0.0, 1.0)
    """The part of each question file to take, from and to, by a hash of the ids: [0.0, 0.5] and [0.5, 1.0] share no
    question, so that a team can be trained on what its warm start has not seen."""
    per_file: int = Field(0, ge=0)
    """At most this many questions from each file; 0 takes all."""
    yes_no: bool = True
    """Also learn from questions for yes or no. A reader that cannot tell earns more by always saying what is right more
    often in the questions it learns from, and loses where that is the other one."""
    balance: bool = False
    """Draw evenly from the question files, whatever their sizes."""
    iterations: int = Field(100, ge=0)
    """Rollouts and updates, alternating."""
    questions_per_iteration: int = Field(128, ge=1)
    """Questions rolled out before each update."""
    rollouts: int = Field(1, ge=1)
    """Traces of each question; `group` and `branch` credit need two or more."""
    concurrency: int = Field(512, ge=1)
    """Questions in flight at once."""
    temperature: float = Field(1.0, gt=0.0)
    """Of the rollouts; `sampling` is for measuring and answering."""
    role_temperature: dict[str, Positive] = Field(default_factory=dict)
    """Roles with a temperature of their own in rollouts: a planner that tries many plans needs executors that do not
    spoil them by chance."""
    processes: int = Field(0, ge=0)
    """Processes that make the rollouts beside the learner's, each with the model once more and a share of the questions
    and of `concurrency`; 0 makes them in the learner's own. For a GPU that waits for its host, and for one learner
    alone; start CUDA's MPS, or they take turns on it."""
    ahead: bool = False
    """Make the next iteration's rollouts while this one's are learned from, with weights that are one update older;
    never across a checkpoint or a measurement. Rollouts are made by a process beside the learner's, or by as many as
    `processes` says."""
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
    trackers: tuple[str, ...] = ()
    """Where figures go beside `metrics.jsonl`: `tensorboard`, `trackio` (both offline; extras of these names), or a
    function of yours as `package.module:function` or `file.py:function`, for Weights & Biases and the like."""
    credit: CreditConfig = CreditConfig()
    policy: PolicyConfig = PolicyConfig()
    ppo: PPOConfig = PPOConfig()
    guard: GuardConfig = GuardConfig()
    vllm: VllmConfig = VllmConfig()
