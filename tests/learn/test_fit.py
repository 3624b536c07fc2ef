from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from learn_faults import ANSWERS
from learn_runs import make_config, make_crew, small_world
from transformers import AutoTokenizer

from jade.backbone.chat import ChatFormat
from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config
from jade.engine.record import dump_trace
from jade.engine.solve import solve
from jade.errors import TrainingStopped
from jade.learn.batches import make_batch
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.policy import Policy, load_policy
from jade.learn.warmstart.collect import collect, plan_course
from jade.learn.warmstart.examples import TokenExample, tokenise
from jade.learn.warmstart.fit import Fit, schedule
from jade.types import Prompt, Question, Trace

EXAMPLES = [TokenExample("AG", (n + 3, n + 4), (n + 50, n + 60, 0)) for n in range(20)]


def make_fit(config: Config, folder: Path, examples: list[TokenExample] = EXAMPLES) -> Fit:
    policy = load_policy(config.backbone, config.learn.policy.model_copy(update={"critic": "none"}))
    return Fit(config, policy, examples, folder)


def make_fit_config(tiny_model: Path, **warmstart: object) -> Config:
    base = {"epochs": 10, "learning_rate": 1e-2, "examples_per_step": 8, "checkpoint_every": 7}
    return make_config(tiny_model, {"warmstart": base | warmstart})


def test_a_fit_learns_its_examples(tiny_model: Path, tmp_path: Path) -> None:
    fit = make_fit(make_fit_config(tiny_model, epochs=20), tmp_path)
    fit.train()
    losses = [row["loss"] for row in read_journal(tmp_path, "fit")]
    assert losses[-1] < losses[0] / 2
    assert fit.progress.iteration == fit.num_steps == 60


def test_every_epoch_shows_every_example_once(tiny_model: Path, tmp_path: Path) -> None:
    fit = make_fit(make_fit_config(tiny_model), tmp_path)
    epochs = [[row for step in range(3 * e, 3 * e + 3) for row in fit._rows(step)] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0] != epochs[1]


def test_a_limit_in_minutes_leaves_a_checkpoint_to_go_on_from(tiny_model: Path, tmp_path: Path) -> None:
    fit = make_fit(make_fit_config(tiny_model), tmp_path)
    assert fit.train(minutes=1e-9).iteration == 0
    assert fit.checkpoints.newest() is not None


def test_a_fit_killed_between_checkpoints_repeats_what_was_lost(tiny_model: Path, tmp_path: Path) -> None:
    config = make_fit_config(tiny_model)
    through = make_fit(config, tmp_path / "through")
    through.train()
    broken = make_fit(config, tmp_path / "broken")
    broken.train()
    broken.checkpoints.drop_after(28)
    resumed = make_fit(config, tmp_path / "broken")
    resumed.train()
    for one, other in zip(through.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)


class Killed(Silent):
    """Ends a fit at a line of its journal, as a signal would."""

    def iteration(self, number: int, total: int, figures: Mapping[str, float]) -> None:
        raise KeyboardInterrupt


def test_a_fit_killed_before_its_first_checkpoint_writes_every_line_once(tiny_model: Path, tmp_path: Path) -> None:
    config = make_fit_config(tiny_model, epochs=14, checkpoint_every=100)
    killed = make_fit(config, tmp_path)
    killed.spectator = Killed()
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    assert [row["iteration"] for row in read_journal(tmp_path, "fit")] == [20]
    make_fit(config, tmp_path).train()
    assert [row["iteration"] for row in read_journal(tmp_path, "fit")] == [20, 40, 42]


def test_the_step_size_rises_and_falls_to_a_tenth() -> None:
    sizes = [schedule(step, 100) for step in range(100)]
    assert sizes[0] == pytest.approx(0.2)
    assert max(sizes) == sizes[4] == 1.0
    assert sizes[5:] == sorted(sizes[5:], reverse=True)
    assert sizes[-1] == pytest.approx(0.1, abs=0.02)


def test_a_fit_that_fails_again_and_again_stops(tiny_model: Path, tmp_path: Path) -> None:
    fit = make_fit(make_fit_config(tiny_model), tmp_path)
    with torch.no_grad():
        next(fit.policy.parameters())[3:] = torch.nan
    with pytest.raises(TrainingStopped, match=r"not finite.*; .* a warmstart\.learning_rate smaller than "):
        fit.train()


@pytest.mark.parametrize("fused", [False, True])
def test_a_fit_passes_over_a_batch_that_is_not_finite(tiny_model: Path, tmp_path: Path, fused: bool) -> None:
    fit = make_fit(make_fit_config(tiny_model, epochs=2), tmp_path)
    fit.optimiser.param_groups[0]["fused"] = fused
    weight = next(weight for _, weight in fit.policy.policy_parameters())
    steps = iter(range(fit.num_steps))
    weight.register_hook(lambda gradient: gradient * (torch.inf if next(steps) == 2 else 1.0))
    fit.train()
    (row,) = read_journal(tmp_path, "fit")
    assert row["skipped"] == 1
    assert next(steps, None) is None
    assert all(bool(weight.isfinite().all()) for weight in fit.policy.parameters())
    assert fit.optimiser.state[weight]["step"] == fit.num_steps - 1


BY_WAY = {"cheap": "<workflow>AG</workflow>", "dear": "<workflow>QR,R,AG</workflow>", "babbling": "well then"}
WRONG = "no idea at all"


async def trace_of(question: Question, config: Config, way: str) -> Trace:
    """The team's trace of a question that it works in some way; a wrong one plans as the cheap one does."""

    def speak(prompt: Prompt) -> str:
        if prompt.role == "P":
            return BY_WAY.get(way, BY_WAY["cheap"])
        if prompt.role == "QR":
            return f"<query>{question.text}</query>"
        return f"<answer>{WRONG if way == 'wrong' else ANSWERS[question.text]}</answer>"

    return await solve(question, make_crew(config, ScriptedBackbone(speak)), seed=0)


def mean_logp(policy: Policy, examples: list[TokenExample]) -> float:
    with torch.no_grad():
        return float(policy(make_batch(examples, range(len(examples)))).logp_N.mean())


async def test_a_fit_learns_what_the_team_did_in_its_best_traces_and_nothing_of_the_others(
    tiny_model: Path, tmp_path: Path, index: Path
) -> None:
    warmstart = {"best_traces": [str(tmp_path / "own.jsonl")], "epochs": 2, "learning_rate": 1e-2}
    config = make_config(tiny_model, {"warmstart": warmstart, "retrieval": {"index": str(index)}})
    ways = [("wrong", "dear", "cheap"), ("dear", "wrong"), ("wrong",), ("babbling", "wrong")]
    questions = small_world().splits["train"][: len(ways)]
    traces = [
        [await trace_of(question, config, way) for way in of] for question, of in zip(questions, ways, strict=True)
    ]
    (tmp_path / "own.jsonl").write_text("".join(dump_trace(trace) + "\n" for of in traces for trace in of))

    examples = await collect(config, plan_course(config), make_crew(config, ScriptedBackbone(str)).retriever)
    said = [(example.prompt.role, example.reply) for example in examples]
    right = [f"<answer>{question.answers[0]}</answer>" for question in questions]
    assert said == [
        ("P", BY_WAY["cheap"]),
        ("AG", right[0]),
        ("P", BY_WAY["dear"]),
        ("QR", f"<query>{questions[1].text}</query>"),
        ("AG", right[1]),
        ("AG", right[3]),
    ]
    assert {example.origin for example in examples} == {"own"}
    assert not any(questions[2].text in example.prompt.user for example in examples)

    chat = ChatFormat(AutoTokenizer.from_pretrained(tiny_model))
    tokens = tokenise(examples, chat, config.backbone.max_prompt_tokens)
    # What the bad traces said, to the same prompt of the answerer.
    wrong = TokenExample("AG", tokens[1].prompt_ids, chat.encode_reply(f"<answer>{WRONG}</answer>"))
    fit = make_fit(config, tmp_path, tokens)
    before = mean_logp(fit.policy, tokens), mean_logp(fit.policy, [tokens[1]]) - mean_logp(fit.policy, [wrong])
    assert fit.train().iteration == 2
    after = mean_logp(fit.policy, tokens), mean_logp(fit.policy, [tokens[1]]) - mean_logp(fit.policy, [wrong])
    assert after[0] > before[0] + 0.1
    assert after[1] > before[1]
