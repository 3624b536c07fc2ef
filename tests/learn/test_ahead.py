"""The next iteration's rollouts are made while this one's are learned from, and a run stays one that can resume."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from learn_faults import become_certain, behave, lose_a_weight
from learn_kills import PATIENCE_SECONDS, numbers
from learn_runs import make_config, make_run, merge, small_world

from jade.backbone.scripted import ScriptedBackbone
from jade.cluster.launch import train_on
from jade.cluster.member import Task
from jade.config import Config
from jade.engine.record import read_traces
from jade.errors import ConfigError
from jade.learn import check
from jade.learn.check import check_alone, check_training
from jade.learn.checkpoint import iteration_of
from jade.learn.deadline import Deadline
from jade.learn.guard import Guard
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Silent
from jade.learn.policy import load_policy
from jade.learn.questions import QuestionStream
from jade.learn.rollouts.ahead import Ahead, Rollouts
from jade.learn.transitions import Experience
from jade.types import Generation, Prompt, Question, Sampling


def ahead_config(model: Path, learn: Mapping[str, Any] | None = None) -> Config:
    """Four iterations with a checkpoint at the end of them."""
    base = {"ahead": True, "iterations": 4, "checkpoint_every": 4}
    return make_config(model, {"learn": merge(base, learn or {})})


class NotedBackbone(ScriptedBackbone):
    """A team that behaves well, and does as it is told while the policy has a version, the first time that it has."""

    def __init__(self, instead: Mapping[int, Callable[[], Any]] | None = None) -> None:
        super().__init__(behave)
        self.version = -1
        self.published: list[tuple[int, int]] = []
        """Every version, with the calls that were answered before it came."""
        self.num_answered = 0
        self.num_cancelled = 0
        self._instead = dict(instead or {})

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        try:
            if self.version in self._instead:
                self.num_calls += 1
                await self._instead[self.version]()
            generation = await super().generate(prompt, sampling)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        self.num_answered += 1
        return generation

    async def update_weights(self, named_tensors: object, version: int) -> None:
        self._instead.pop(self.version, None)
        self.version = version
        self.published.append((version, self.num_answered))


class NotedLearner(Learner):
    """Waits in the updates of some iterations until somebody samples beside it."""

    def __init__(self, config: Config, backbone: NotedBackbone, *, waits_in: range = range(0)) -> None:
        super().__init__(load_policy(config.backbone, config.learn.policy, config.seed), config.learn)
        self._backbone, self._waits_in = backbone, waits_in
        self.threads: list[str] = []
        self.num_learned: list[int] = []
        """Calls of all rollouts that were learned from, after each update."""
        self.spoil: dict[int, Callable[[Learner], None]] = {}

    def update(self, experience: Experience, *, iteration: int, seed: int) -> dict[str, float]:
        self.threads.append(threading.current_thread().name)
        before = self.num_learned[-1] if self.num_learned else 0
        self.num_learned.append(before + sum(trace.usage.calls for trace in experience.traces.values()))
        if iteration in self._waits_in:
            self._see_others()
        if iteration in self.spoil:
            self.spoil.pop(iteration)(self)
        return super().update(experience, iteration=iteration, seed=seed)

    def _see_others(self) -> None:
        waiting = threading.Event()
        for _ in range(int(PATIENCE_SECONDS / 0.01)):
            if self._backbone.num_calls > self.num_learned[-1]:
                return
            waiting.wait(0.01)
        raise AssertionError("nobody sampled while this was learned from")


async def never() -> None:
    await asyncio.Event().wait()


async def test_rollouts_are_made_during_the_update_and_end_before_weights_are_published(
    tiny_model: Path, tmp_path: Path
) -> None:
    config, backbone = ahead_config(tiny_model), NotedBackbone()
    learner = NotedLearner(config, backbone, waits_in=range(3))
    await make_run(config, tmp_path, backbone=backbone, learner=learner).train()
    learned = learner.num_learned
    # When a version comes, the rollouts of the next iteration are there, but for the last, which has none.
    assert backbone.published == [(0, 0), *zip((1, 2, 3, 4), (*learned[1:], learned[-1]), strict=True)]
    assert {name.partition("_")[0] for name in learner.threads} == {"jade-learn"}
    assert len(set(learner.threads)) == 1


async def test_the_next_rollouts_are_under_way_before_the_last_are_looked_at(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, seen, draw, judge = [], [], QuestionStream.draw, Guard.judge_rollout

    def noted(stream: QuestionStream, iteration: int, count: int) -> list[Question]:
        drawn.append(iteration)
        return draw(stream, iteration, count)

    def noted_too(guard: Guard, *given: Any) -> None:
        seen.append(list(drawn))
        judge(guard, *given)

    monkeypatch.setattr(QuestionStream, "draw", noted)
    monkeypatch.setattr(Guard, "judge_rollout", noted_too)
    await make_run(ahead_config(tiny_model), tmp_path).train()
    # The first iteration's are made for it; the last has nothing to come.
    assert seen == [[0], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]


async def test_without_it_an_update_is_alone_and_the_journal_knows_no_lag(tiny_model: Path, tmp_path: Path) -> None:
    config, backbone = ahead_config(tiny_model, {"ahead": False}), NotedBackbone()
    learner = NotedLearner(config, backbone)
    await make_run(config, tmp_path, backbone=backbone, learner=learner).train()
    assert backbone.published == [(0, 0), *zip((1, 2, 3, 4), learner.num_learned, strict=True)]
    assert set(learner.threads) == {threading.current_thread().name}
    rows = list(read_journal(tmp_path, "iteration"))
    assert not any(name in row for row in rows for name in ("lag", "seconds_waited"))


async def test_where_nothing_may_be_begun_a_run_is_what_it_is_without(tiny_model: Path, tmp_path: Path) -> None:
    for ahead in (True, False):
        config = ahead_config(tiny_model, {"ahead": ahead, "iterations": 2, "checkpoint_every": 1})
        await make_run(config, tmp_path / str(ahead)).train()
    rows = numbers(tmp_path / "True")
    assert [row.pop("lag") for row in rows] == [0, 0]
    assert rows == numbers(tmp_path / "False")


@pytest.mark.parametrize(
    ("measured", "lags"), [(False, [0, 1, 1, 0, 1, 1, 0]), (True, [0, 1, 1, 0, 0, 1, 0])], ids=["plain", "with dev"]
)
async def test_nothing_is_begun_across_a_checkpoint_or_a_measurement(
    tiny_model: Path, tmp_path: Path, measured: bool, lags: list[int]
) -> None:
    config = ahead_config(tiny_model, {"iterations": 7, "checkpoint_every": 3, "dev_every": 4, "traces_every": 1})
    dev = small_world().splits["dev"][:1] if measured else ()
    await make_run(config, tmp_path, dev=dev).train()
    rows = list(read_journal(tmp_path, "iteration"))
    assert [row["lag"] for row in rows] == lags
    for iteration, lag in enumerate(lags):
        traces = read_traces(tmp_path / "traces" / f"iteration-{iteration + 1:06d}.jsonl")
        said = {step.generation.policy_version for trace in traces for step in trace.steps if step.generation}
        assert said == {iteration - lag}


async def test_seconds_of_an_iteration_are_those_of_the_clock(tiny_model: Path, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await make_run(ahead_config(tiny_model), tmp_path).train()
    took = loop.time() - started
    rows = list(read_journal(tmp_path, "iteration"))
    assert sum(row["seconds"] for row in rows) <= took
    for row in rows:
        shown = ["look_back", "update", "look_after", "waited", "publish", *(["rollout"] if not row["lag"] else [])]
        assert sum(row[f"seconds_{name}"] for name in shown) <= row["seconds"]
        assert row["seconds_rollout"] > 0


async def test_identical_seeds_give_identical_runs(tiny_model: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        await make_run(ahead_config(tiny_model), tmp_path / name).train()
    assert [row["lag"] for row in read_journal(tmp_path / "one", "iteration")] == [0, 1, 1, 1]
    assert numbers(tmp_path / "one") == numbers(tmp_path / "other")


@pytest.mark.parametrize("adapt", ["full", "lora"])
async def test_going_on_from_any_checkpoint_ends_where_going_through_does(
    tiny_model: Path, tmp_path: Path, adapt: str
) -> None:
    settings = {"iterations": 6, "checkpoint_every": 2, "dev_every": 3, "keep": 9, "policy": {"adapt": adapt}}
    config, dev = ahead_config(tiny_model, settings), small_world().splits["dev"][:1]
    through = make_run(config, tmp_path / "through", dev=dev)
    await through.train()
    assert [row["lag"] for row in read_journal(tmp_path / "through", "iteration")] == [0, 1, 0, 0, 0, 1]
    places = [iteration_of(place) for place in through.checkpoints.all()]
    assert {0, 2, 4} <= set(places)
    for place in places[:-1]:
        folder = tmp_path / f"from-{place}"
        shutil.copytree(tmp_path / "through", folder)
        killed = make_run(config, folder, dev=dev)
        killed.checkpoints.drop_after(place)
        await killed.train()
        assert numbers(folder) == numbers(tmp_path / "through")
        for name in ("policy.safetensors", "optimiser.safetensors"):
            one, other = (run / "checkpoints/step-000006" / name for run in (folder, tmp_path / "through"))
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("spoil", [lose_a_weight, become_certain], ids=["raised by the update", "judged after it"])
async def test_an_alarm_drops_what_was_begun_and_the_run_goes_on_from_its_checkpoint(
    tiny_model: Path, tmp_path: Path, spoil: Callable[[Learner], None]
) -> None:
    config = ahead_config(tiny_model, {"guard": {"min_entropy": 1.0, "max_kl": 1e9}})
    # Rollouts of iteration 2 are made with version 1; the first time they never end by themselves.
    backbone = NotedBackbone({1: never})
    learner = NotedLearner(config, backbone, waits_in=range(1, 2))
    learner.spoil[1] = spoil
    progress = await make_run(config, tmp_path, backbone=backbone, learner=learner).train()
    assert progress.iteration == 4
    assert backbone.num_cancelled > 0
    (event,) = read_journal(tmp_path, "guard")
    assert (event["iteration"], event["back_to"]) == (1, 0)
    rows = list(read_journal(tmp_path, "iteration"))
    assert [(row["iteration"], row["lag"]) for row in rows] == [(1, 0), (1, 0), (2, 1), (3, 1), (4, 1)]
    assert [version for version, _ in backbone.published] == [0, 1, 0, 1, 2, 3, 4]
    assert_nothing_is_left()


class BabblingBackbone(NotedBackbone):
    """Says nothing of use from the moment it is told until it gets older weights."""

    def __init__(self) -> None:
        super().__init__()
        self._script = lambda prompt: "well then" if self._babbles else behave(prompt)
        self._babbles = False

    def begin_to_babble(self) -> None:
        self._babbles = True

    async def update_weights(self, named_tensors: object, version: int) -> None:
        self._babbles = self._babbles and version > self.version
        await super().update_weights(named_tensors, version)


def when_drawn(monkeypatch: pytest.MonkeyPatch, iteration: int, then: Callable[[], None]) -> None:
    """Have something happen when an iteration's questions are first drawn, which is when its rollouts begin."""
    draw, waiting = QuestionStream.draw, [then]

    def noted(stream: QuestionStream, drawn: int, count: int) -> list[Question]:
        if drawn == iteration and waiting:
            waiting.pop()()
        return draw(stream, drawn, count)

    monkeypatch.setattr(QuestionStream, "draw", noted)


async def test_a_bad_rollout_goes_back_behind_the_weights_that_sampled_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rollouts of iterations 2 and 3 are both made with version 2, which is a checkpoint, and those of 3 babble.
    config, backbone = ahead_config(tiny_model, {"checkpoint_every": 2}), BabblingBackbone()
    when_drawn(monkeypatch, 3, backbone.begin_to_babble)
    await make_run(config, tmp_path, backbone=backbone).train()
    (event,) = read_journal(tmp_path, "guard")
    assert (event["event"], event["iteration"], event["back_to"]) == ("format", 3, 0)


async def test_what_breaks_rollouts_that_were_begun_is_raised_when_their_turn_comes(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down() -> None:
        raise ZeroDivisionError("the stream is broken")

    when_drawn(monkeypatch, 2, break_down)
    with pytest.raises(ZeroDivisionError, match="the stream is broken"):
        await make_run(ahead_config(tiny_model), tmp_path, backbone=NotedBackbone()).train()
    # The update that went on beside them is not lost.
    assert [row["iteration"] for row in read_journal(tmp_path, "iteration")] == [1, 2]
    assert_nothing_is_left()


async def test_an_error_of_the_update_ends_the_run_and_what_was_begun(tiny_model: Path, tmp_path: Path) -> None:
    def break_down(learner: Learner) -> None:
        raise ZeroDivisionError("the learner is broken")

    config, backbone = ahead_config(tiny_model), NotedBackbone({1: never})
    learner = NotedLearner(config, backbone, waits_in=range(1, 2))
    learner.spoil[1] = break_down
    with pytest.raises(ZeroDivisionError, match="the learner is broken"):
        await make_run(config, tmp_path, backbone=backbone, learner=learner).train()
    assert backbone.num_cancelled > 0
    assert_nothing_is_left()


async def test_a_run_that_is_cancelled_leaves_neither_rollouts_nor_an_update_behind(
    tiny_model: Path, tmp_path: Path
) -> None:
    learning, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hold(learner: Learner) -> None:
        learning.set()
        release.wait(PATIENCE_SECONDS)
        ended.set()

    config, backbone = ahead_config(tiny_model), NotedBackbone({1: never})
    learner = NotedLearner(config, backbone, waits_in=range(1, 2))
    learner.spoil[1] = hold
    training = asyncio.create_task(make_run(config, tmp_path, backbone=backbone, learner=learner).train())
    assert await asyncio.to_thread(learning.wait, PATIENCE_SECONDS)
    training.cancel()
    # The update cannot be interrupted, so that leaving waits for it.
    threading.Timer(0.1, release.set).start()
    with pytest.raises(asyncio.CancelledError):
        await training
    assert ended.is_set()
    assert backbone.num_cancelled > 0
    assert_nothing_is_left()


@pytest.mark.parametrize("has_begun_two", [False, True])
async def test_what_was_begun_when_the_time_is_up_is_dropped_and_a_checkpoint_is_there(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun_two: bool
) -> None:
    answers = iter([True, True, has_begun_two, False])
    monkeypatch.setattr(Deadline, "has_time", lambda self: next(answers))
    backbone = NotedBackbone()
    config = ahead_config(tiny_model)
    learner = NotedLearner(config, backbone, waits_in=range(1))
    run = make_run(config, tmp_path, backbone=backbone, learner=learner)
    progress = await run.train(minutes=1.0)
    assert progress.iteration == 1
    assert iteration_of(run.checkpoints.all()[-1]) == 1
    assert backbone.num_answered > learner.num_learned[-1]
    assert_nothing_is_left()


async def test_nothing_is_begun_that_the_time_has_no_room_for(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, False, False])
    monkeypatch.setattr(Deadline, "has_time", lambda self: next(answers))
    config, backbone = ahead_config(tiny_model), NotedBackbone()
    learner = NotedLearner(config, backbone)
    await make_run(config, tmp_path, backbone=backbone, learner=learner).train(minutes=1.0)
    assert backbone.num_answered == learner.num_learned[-1]


async def test_the_thread_that_learns_is_on_the_gpu_of_the_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(
        torch.cuda, "set_device", lambda device: chosen.append((threading.current_thread().name, device))
    )
    async with Ahead() as ahead:
        await ahead.learn(lambda: None)
    assert chosen == [("jade-learn_0", 1)]


async def fail_soon() -> Rollouts:
    raise ZeroDivisionError("the sampler is broken")


async def leave_with_a_failure(error: Exception | None = None) -> None:
    async with Ahead() as ahead:
        ahead.begin(fail_soon())
        await ahead.wait()
        if error is not None:
            raise error


async def test_a_failure_of_what_is_dropped_is_raised_unless_something_else_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ZeroDivisionError, match="the sampler is broken"):
        await leave_with_a_failure()
    with caplog.at_level(logging.WARNING), pytest.raises(KeyError, match="first"):
        await leave_with_a_failure(KeyError("first"))
    assert "begun ahead had failed as well: ZeroDivisionError: the sampler is broken" in caplog.text


def assert_nothing_is_left() -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("jade-learn")]


@pytest.fixture
def sound(tiny_model: Path, tmp_path: Path, index: Path) -> dict[str, Any]:
    """Settings of a run that can begin."""
    for name, text in (("train", "Who wrote Emma?"), ("dev", "Who wrote Dubliners?")):
        line = f'{{"id": "{name}", "question": "{text}", "golden_answers": ["Ada"]}}\n'
        (tmp_path / f"{name}.jsonl").write_text(line)
    return {
        "backbone": {"model": str(tiny_model), "device": "cpu"},
        "retrieval": {"index": str(index)},
        "learn": {"ahead": True, "questions": [tmp_path / "train.jsonl"]},
    }


def test_one_process_with_room_between_its_checkpoints_is_not_refused(sound: dict[str, Any]) -> None:
    check_training(Config.model_validate(sound))
    check_training(Config.model_validate(merge(sound, {"learn": {"dev_every": 1}})))


@pytest.mark.parametrize(
    ("learn", "remedy"),
    [
        ({"checkpoint_every": 1}, r"learn\.checkpoint_every must be over 1"),
        ({"dev_every": 1, "dev": ["dev.jsonl"]}, r"learn\.dev_every must be over 1"),
        ({"vllm": {"urls": ["http://localhost:8000"]}}, r"learn\.vllm\.urls does not have; set false"),
    ],
    ids=["checkpoints", "measurements", "vllm"],
)
def test_settings_under_which_nothing_can_be_begun_are_refused_by_name(
    sound: dict[str, Any], learn: dict[str, Any], remedy: str
) -> None:
    config = Config.model_validate(merge(sound, {"learn": learn}))
    with pytest.raises(ConfigError, match=rf"^learn\.ahead: .*{remedy}$"):
        check_training(config)


def test_processes_beside_several_learners_are_refused(sound: dict[str, Any], tmp_path: Path) -> None:
    config = Config.model_validate(merge(sound, {"learn": {"ahead": False, "processes": 2}}))
    with pytest.raises(ConfigError, match=r"^learn\.processes: .*--backend torchrun does not have; set 0$"):
        train_on("torchrun", Task(config, tmp_path / "run"), Silent())


def test_several_processes_are_refused(sound: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate(sound)
    for backend in ("torchrun", "ray"):
        with pytest.raises(ConfigError, match=rf"^learn\.ahead: .*--backend {backend}"):
            train_on(backend, Task(config, tmp_path / "run"), Silent())
    monkeypatch.setattr(check, "num_ranks", lambda: 2)
    with pytest.raises(ConfigError, match=r"^learn\.ahead: .* a run of 2 processes"):
        check_training(config)
    assert not (tmp_path / "run").exists()
    check_alone(Config.model_validate(merge(sound, {"learn": {"ahead": False}})), "a troupe")
