"""`jade warmstart`: gold data becomes examples, the examples a policy, the policy a folder that a backbone loads."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from jade.backbone.chat import ChatFormat
from jade.backbone.weights import resolve_weights
from jade.config import Config, load_config
from jade.errors import ConfigError
from jade.learn.check import Say, say_if_unfit
from jade.learn.checkpoint import Checkpoints
from jade.learn.export import export_policy
from jade.learn.monitor.show import Spectator
from jade.learn.open import claimed, differences, set_threads
from jade.learn.policy import Policy, load_policy
from jade.learn.warmstart.collect import Course, collect, plan_course
from jade.learn.warmstart.examples import (
    Example,
    TokenExample,
    balanced,
    count_by_role,
    read_examples,
    tokenise,
    write_examples,
)
from jade.learn.warmstart.fit import Fit
from jade.retrieval.open import open_retriever
from jade.team.team import build_team

EXAMPLES = "examples.jsonl.gz"
AFTER_EXAMPLES = (
    *("backbone.", "roles.", "learn.", "eval.", "serve.", "cluster."),
    *(f"warmstart.{name}" for name in ("per_role", "role_examples", "repeat")),
    *(f"warmstart.{name}" for name in ("epochs", "learning_rate", "examples_per_step", "checkpoint_every")),
)
"""Settings, by how their names begin, that say what is made of examples and not what they are."""


def make_examples(config: Config, folder: Path, say: Say, *, resume: bool = False) -> Path:
    """Write the examples of a course into the folder. Examples that are there already are taken as they are, if this
    config would make the same."""
    course = _planned(config, folder)
    with claimed(config, folder, resume):
        return _written(config, course, folder, say)


def run_warmstart(
    config: Config, folder: Path, spectator: Spectator, say: Say, *, resume: bool = False, minutes: float | None = None
) -> Path | None:
    """Fit a policy to the examples. Gives the folder of the finished model; None when the time was up before."""
    course = _planned(config, folder)
    with claimed(config, folder, resume):
        examples = _written(config, course, folder, say)
        set_threads(config)
        silent_critic = config.learn.policy.model_copy(update={"critic": "none"})
        policy = load_policy(config.backbone, silent_critic, config.seed)
        fit = Fit(config, policy, _tokens(config, examples, say), folder, spectator)
        progress = fit.train(minutes)
        if progress.iteration < fit.num_steps:
            say(f"stopped after {progress.iteration} of {fit.num_steps} steps; go on with --resume")
            return None
        return _exported(policy, config, folder)


def _planned(config: Config, folder: Path) -> Course | None:
    """The course whose examples are still to be made; None where those of this config are there already."""
    if not (folder / EXAMPLES).is_file():
        return plan_course(config)
    _check_same_course(config, folder)
    return None


def _written(config: Config, course: Course | None, folder: Path, say: Say) -> Path:
    path = folder / EXAMPLES
    if course is not None:
        if course.leaks.dropped:
            say(str(course.leaks))
        examples = asyncio.run(_collect(config, course, say))
        if not examples:
            codes = ", ".join(config.warmstart.roles)
            raise ConfigError(
                f"warmstart.roles: these questions teach nothing to {codes}; gold data teaches the shipped roles, "
                "others learn from warmstart.best_traces"
            )
        write_examples(path, examples)
    return path


def _check_same_course(config: Config, folder: Path) -> None:
    """Old examples may hold what a new config keeps for measuring: they are used only by the config they are of."""
    written = folder / "config.toml"
    changed = differences(load_config(written), config) if written.is_file() else []
    for name in changed:
        if not name.startswith(AFTER_EXAMPLES):
            raise ConfigError(f"{name}: differs from the examples in {folder}; give another --out for others")


def _exported(policy: Policy, config: Config, folder: Path) -> Path:
    """The folder of the finished model. One that is there stays, unless the fit has gone on since."""
    out = folder / ("adapter" if config.learn.policy.adapt == "lora" else "model")
    fitted = Checkpoints(folder / "checkpoints").newest()
    assert fitted is not None, "a fit that ended has a checkpoint"
    # A fit that was resumed when it had ended writes no checkpoint: its model is still the one that lies there.
    if out.is_dir() and out.stat().st_mtime_ns >= fitted.stat().st_mtime_ns:
        return out
    shutil.rmtree(out, ignore_errors=True)
    return export_policy(policy, config, out)


async def _collect(config: Config, course: Course, say: Say) -> list[Example]:
    retriever = open_retriever(config.retrieval)
    try:
        await say_if_unfit([lesson.question for lesson in course.lessons], retriever, config.retrieval.index, say)
        return await collect(config, course, retriever)
    finally:
        await retriever.close()


def _tokens(config: Config, path: Path, say: Say) -> list[TokenExample]:
    from transformers import AutoTokenizer

    written = list(read_examples(path, build_team(config.team).prompts))
    cfg = config.warmstart
    examples = balanced(written, cfg.per_role, cfg.repeat, cfg.role_examples)
    counts = count_by_role(examples)
    untaught = [code for code in cfg.roles if code not in counts]
    say(f"{len(examples):,} examples, by role: {counts}" + (f"; none of {', '.join(untaught)}" if untaught else ""))
    folder = resolve_weights(config.backbone.model)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    return tokenise(examples, ChatFormat(tokenizer), config.backbone.max_prompt_tokens)
