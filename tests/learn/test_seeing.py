from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from learn_builders import make_step, make_trace
from rich.console import Console

from jade.config import GuardConfig, RewardConfig
from jade.errors import ConfigError, TraceUnreadable
from jade.learn.deadline import Deadline
from jade.learn.figures import rollout_figures, why_steps_failed
from jade.learn.guard import Alarm, Guard
from jade.learn.journal import Journal, read_journal
from jade.learn.plot import is_control, plot_run, plot_runs, setting_of, smooth, top_plans
from jade.learn.show import Lines, LiveTable, describe_plans, time_left, watch
from jade.types import Malformed, Node, Question, Trace, Usage, Workflow

FIGURES = {"reward": 0.25, "outcome": 0.5, "rounds": 2.0, "retrievals": 1.0, "malformed": 0.1, "approx_kl": 0.01}
PLANS = {"plan/QDS": 0.6, "plan/R,AG": 0.4}


def make_planned(id: str, workflow: str, answer: str, *, error: str | None = None) -> Trace:
    steps = (make_step(0, "P", action=Workflow(tuple(workflow.split(",")))), make_step(1, "AG", action=Malformed("x")))
    nodes = [Node("0", None, "Who?", "Who?", workflow=workflow)]
    if workflow == "QDS":
        nodes += [Node("0.1", "0", "Which?", "Which?")]
    question = Question("q", "Who?", ("Ada",), "nq" if answer else "hotpotqa")
    return Trace(id, question, tuple(nodes), steps, answer, usage=Usage(2, 3, 1, 100, 20), error=error)


def test_rollouts_are_summed_up_in_flat_figures() -> None:
    traces = [
        make_planned("a", "QDS", "Ada"),
        make_planned("b", "R,AG", "Bob"),
        make_planned("c", "R,AG", "", error="x"),
    ]
    figures = rollout_figures(traces, RewardConfig(alpha=0.3))
    assert figures["outcome"] == pytest.approx(1 / 3)
    assert figures["cost"] == pytest.approx(0.3)
    assert figures["reward"] == pytest.approx(1 / 3 - 0.3)
    # Two questions, of which one earned 0.5 in two rollouts and one nothing, each at a cost of 0.3.
    assert figures["reward_error"] == pytest.approx(0.25)
    # Half of the calls are malformed, at a penalty of 1 each.
    assert figures["step_reward"] == pytest.approx(1 / 3 - 0.3 - 0.5)
    assert (figures["malformed"], figures["malformed/P"], figures["malformed/AG"]) == (0.5, 0.0, 1.0)
    assert figures["failed"] == pytest.approx(1 / 3)
    assert figures["plan/R,AG"] == figures["top_plan"] == pytest.approx(2 / 3)
    assert (figures["outcome/nq"], figures["outcome/hotpotqa"]) == (0.5, 0.0)
    assert (figures["split/nq"], figures["split/hotpotqa"]) == (0.5, 0.0)


def test_steps_that_failed_are_counted_though_their_question_was_answered_and_refused_ones_are_not() -> None:
    failed = replace(make_step(1, "AG"), generation=None, error="BackboneFailed: out of memory")
    refused = replace(make_step(2, "R", tool=True), error="the retrieval budget is spent")
    trace = make_trace([make_step(0, "P"), failed, refused, make_step(3, "AG")])
    figures = rollout_figures([trace], RewardConfig())
    assert (figures["failed"], figures["failed_steps"]) == (0.0, 0.25)
    assert why_steps_failed([trace]) == "BackboneFailed: out of memory"
    with pytest.raises(Alarm, match="failures: 25% of the calls and searches failed: BackboneFailed: out of memory"):
        Guard(GuardConfig()).judge_rollout(figures, [trace])
    Guard(GuardConfig(max_failed_steps=0.25)).judge_rollout(figures, [trace])


def test_a_team_without_a_planner_has_no_plans_to_count() -> None:
    figures = rollout_figures([make_trace([make_step(0, "AG")])], RewardConfig())
    assert not [name for name in figures if "plan" in name]


def test_a_journal_is_cut_back_to_where_a_checkpoint_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("iteration", 1, {"reward": 0.5})
    mark = journal.num_bytes
    journal.write("iteration", 2, {"reward": 0.6})
    journal.cut_back(mark)
    journal.write("dev", 1, {"reward": 0.7})
    assert [(row["kind"], row["iteration"]) for row in read_journal(tmp_path)] == [("iteration", 1), ("dev", 1)]
    assert [row["reward"] for row in read_journal(tmp_path, "dev")] == [0.7]


def test_a_line_that_was_cut_off_in_writing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"kind": "iteration", "iteration": 1}\n{"kind": "itera')
    assert [row["iteration"] for row in read_journal(tmp_path)] == [1]


def test_a_folder_that_is_no_run_and_a_damaged_journal_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match="not a training run"):
        list(read_journal(tmp_path))
    (tmp_path / "metrics.jsonl").write_text("junk\n")
    with pytest.raises(TraceUnreadable, match="line 1"):
        list(read_journal(tmp_path))


def test_tensorboard_that_is_not_there_is_named_as_a_setting(tmp_path: Path) -> None:
    try:
        import tensorboard  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigError, match=r"learn\.tensorboard"):
            Journal(tmp_path, tensorboard=True)
    else:
        from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            EventAccumulator,
        )

        journal = Journal(tmp_path, tensorboard=True)
        journal.write("iteration", 3, {"reward": 0.5, "note": "text is left out"})
        journal.close()
        board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
        assert board.Tags()["scalars"] == ["iteration/reward"]
        assert [(event.step, event.value) for event in board.Scalars("iteration/reward")] == [(3, 0.5)]


@pytest.mark.parametrize(("saved", "steps"), [(True, [0, 1, 2, 3]), (False, [0, 1, 2])], ids=["saved", "never saved"])
def test_tensorboard_shows_every_iteration_of_a_resumed_run_once(tmp_path: Path, saved: bool, steps: list[int]) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    killed = Journal(tmp_path, tensorboard=True)
    killed.cut_back(0)
    for iteration in (0, 1):
        killed.write("iteration", iteration, {"reward": 0.1})
    mark = killed.num_bytes
    for iteration in (2, 3):
        killed.write("iteration", iteration, {"reward": 0.1})
    killed.close()
    resumed = Journal(tmp_path, tensorboard=True)
    resumed.cut_back(mark if saved else 0, 1 if saved else 0)
    for iteration in steps[2:] if saved else steps:
        resumed.write("iteration", iteration, {"reward": 0.2})
    resumed.close()
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in board.Scalars("iteration/reward")] == steps


def make_journal(folder: Path, num: int = 8) -> Path:
    journal = Journal(folder)
    for iteration in range(1, num + 1):
        journal.write("iteration", iteration, FIGURES | PLANS | {"outcome": iteration / 10})
    journal.write("dev", 4, FIGURES)
    journal.write("iteration", num, FIGURES | PLANS)
    return folder


def test_both_pictures_are_drawn_as_png_and_svg(tmp_path: Path) -> None:
    paths = plot_run(make_journal(tmp_path), tmp_path / "plots")
    assert [path.name for path in paths] == ["outcome.png", "outcome.svg", "workflows.png", "workflows.svg"]
    assert all(path.stat().st_size > 3000 for path in paths)
    assert "QDS" in paths[3].read_text() or paths[3].read_text().count("<path") > 5


def test_a_run_over_several_datasets_also_shows_which_of_them_are_split(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for iteration in (1, 2, 3):
        # A dataset that was not drawn in an iteration has no figure there.
        rare = {"split/popqa": 0.0} if iteration == 2 else {}
        journal.write("iteration", iteration, FIGURES | PLANS | rare | {"split/2wiki": 0.9, "split/hotpotqa": 0.5})
    journal.write("dev", 2, FIGURES | {"split/2wiki": 1.0})
    paths = plot_run(tmp_path, tmp_path / "plots")
    assert [path.name for path in paths[4:]] == ["splits.png", "splits.svg"]
    picture = paths[5].read_text()
    assert all(picture.count(f"stroke: {colour}") >= 2 for colour in ("#1f77b4", "#ff7f0e", "#2ca02c"))


def test_seeds_of_one_setting_share_a_colour(tmp_path: Path) -> None:
    for name in ("joint-0", "joint-1", "planner-only-0"):
        Journal(tmp_path / name).write("iteration", 1, FIGURES | {"step_reward": 0.1, "learning_rate": 1e-3})
    names = ("joint-0", "joint-1", "planner-only-0")
    picture = plot_runs([tmp_path / name for name in names], tmp_path / "plots")[1].read_text()
    assert "#1f77b4" in picture
    assert "#ff7f0e" in picture
    assert "#2ca02c" not in picture
    assert [setting_of(name) for name in ("joint-0", "a-b-12", "joint", "0", "-1")] == [
        "joint",
        "a-b",
        "joint",
        "0",
        "-1",
    ]


def test_several_runs_are_drawn_side_by_side(tmp_path: Path) -> None:
    learned = {"step_reward": 0.1, "learning_rate": 1e-3}
    for name, figures in (("ppo", learned), ("control", learned | {"learning_rate": 0.0})):
        for iteration in (1, 2):
            Journal(tmp_path / name).write("iteration", iteration, FIGURES | figures)
    paths = plot_runs([tmp_path / "ppo", tmp_path / "control"], tmp_path / "plots")
    assert [path.name for path in paths] == ["runs.png", "runs.svg"]
    # Two runs in three panels, a thin and a thick line each; the one that does not learn is grey.
    picture = paths[1].read_text()
    assert picture.count("stroke: #8c8c8c") >= 4
    assert picture.count("stroke: #1f77b4") >= 4
    assert not is_control([learned])


def test_a_run_without_an_iteration_has_nothing_to_draw(tmp_path: Path) -> None:
    Journal(tmp_path)
    with pytest.raises(TraceUnreadable, match="nothing to draw"):
        plot_run(tmp_path, tmp_path / "plots")


def test_the_mean_line_looks_back_only() -> None:
    assert smooth([0.0, 1.0, 1.0, 1.0, 1.0, 1.0]) == [0.0, 0.5, 2 / 3, 0.75, 0.8, 1.0]


def test_the_most_frequent_plans_get_an_area_of_their_own() -> None:
    rows = [
        {f"plan/{name}": share}
        for name, share in zip("ABCDEFGH", (0.1, 0.9, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), strict=True)
    ]
    assert top_plans(rows) == ["B", "H", "G", "F", "E", "D"]


def test_lines_say_what_happened_and_markup_in_it_stays_text() -> None:
    out = io.StringIO()
    with watch(Console(file=out, width=300)) as spectator:
        assert isinstance(spectator, Lines)
        spectator.iteration(3, 10, FIGURES | PLANS | {"seconds": 30.0, "tokens/P": 600.0})
        spectator.dev(3, FIGURES)
        spectator.alarm(4, Alarm("kl", "[red]far[/red]"), 2, 0.5)
    text = out.getvalue()
    assert "3/10 reward 0.250 outcome 0.500" in text
    assert "QDS 60% R,AG 40% 20 tokens/s 3:30 left" in text
    assert "4 guard: kl: [red]far[/red]; back to 2, step size times 0.5" in text


def test_the_live_table_shows_the_last_iterations() -> None:
    out = io.StringIO()
    with LiveTable(Console(file=out, force_terminal=True, width=200)) as table:
        for number in range(1, 20):
            table.iteration(number, 20, FIGURES | PLANS | {"seconds": 1.0})
        table.dev(19, FIGURES)
        table.alarm(19, Alarm("kl", "far"), 2, 0.5)
    shown = out.getvalue()
    assert "19/20" in shown
    for name in ("reward", "outcome", "rounds", "retrievals", "malformed", "approx kl", "plans", "tokens/s", "left"):
        assert name in shown
    assert "QDS 60% R,AG 40%" in shown
    assert "guard: kl: far" in out.getvalue()


def test_a_terminal_gets_the_live_table() -> None:
    with watch(Console(file=io.StringIO(), force_terminal=True)) as spectator:
        assert isinstance(spectator, LiveTable)


def test_plans_and_time_are_described_briefly() -> None:
    assert (
        describe_plans({f"plan/{n}": s for n, s in (("A", 0.1), ("B", 0.5), ("C", 0.3), ("D", 0.05))})
        == "B 50% C 30% A 10%"
    )
    assert time_left(1, 3, {"seconds": 45.4}) == "1:31 left"


def test_a_deadline_leaves_room_for_the_longest_unit_so_far() -> None:
    now = [0.0]
    deadline = Deadline(1.0, clock=lambda: now[0])
    assert deadline.has_time()
    with deadline.timing():
        now[0] += 25
    assert deadline.has_time()
    with deadline.timing():
        now[0] += 20
    assert not deadline.has_time()
    assert Deadline(None, clock=lambda: now[0]).has_time()


def test_figures_survive_json(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("iteration", 1, {"reward": 0.1 + 0.2})
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["reward"] == 0.1 + 0.2
