from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learn_builders import make_step, make_trace
from rich.console import Console
from rich.text import Text

from jade.config import GuardConfig, RewardConfig
from jade.errors import TraceUnreadable
from jade.learn.deadline import Deadline
from jade.learn.guard import Alarm, Guard
from jade.learn.monitor.figures import rollout_figures, why_steps_failed
from jade.learn.monitor.journal import Journal, read_journal
from jade.learn.monitor.plot import (
    COMPARED,
    _comparison,
    _outcome_and_turns,
    _splits,
    _workflows,
    is_control,
    plot_run,
    plot_runs,
    setting_of,
    smooth,
    top_plans,
)
from jade.learn.monitor.show import Lines, LiveTable, choose_columns, describe_plans, speed_of, time_left, watch
from jade.types import Malformed, Node, Observation, Passage, Question, Selection, Step, Trace, Usage, Workflow

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
    assert figures["step_reward/P"] == pytest.approx(1 / 3 - 0.3)
    assert figures["step_reward/AG"] == pytest.approx(1 / 3 - 0.3 - 1)
    assert figures["failed"] == pytest.approx(1 / 3)
    assert figures["plan/R,AG"] == figures["top_plan"] == pytest.approx(2 / 3)
    assert (figures["outcome/nq"], figures["outcome/hotpotqa"]) == (0.5, 0.0)
    assert (figures["split/nq"], figures["split/hotpotqa"]) == (0.5, 0.0)
    assert figures["split_gain"] == figures["split_gain/nq"] == 1.0
    assert "split_gain/hotpotqa" not in figures, "nothing of it was split"


def test_outputs_that_ran_out_of_room_and_prompts_that_lost_some_are_counted_for_each_role() -> None:
    def said(number: int, role: str, ids: int, **how: Any) -> Step:
        step = make_step(number, role, ids=[7] * ids)
        assert step.generation is not None
        return replace(step, generation=replace(step.generation, **how))

    steps = (said(0, "P", 2), said(1, "AG", 8, finish="length"), said(2, "AG", 4, prompt_cut=30), said(3, "AG", 3))
    figures = rollout_figures([replace(make_planned("a", "R,AG", "Ada"), steps=steps)], RewardConfig())
    assert (figures["output_cut"], figures["output_cut/P"], figures["output_cut/AG"]) == (1 / 4, 0.0, 1 / 3)
    assert (figures["prompt_cut"], figures["prompt_cut/P"], figures["prompt_cut/AG"]) == (1 / 4, 0.0, 1 / 3)
    assert (figures["output_tokens/P"], figures["output_tokens/AG"]) == (2, 5)


def test_selectors_are_held_against_the_order_of_the_search() -> None:
    shown = (
        Passage("1", "A", "Nobody."),
        Passage("2", "B", "Ada wrote it."),
        Passage("3", "C", "Nobody."),
        Passage("4", "D", "x"),
    )

    def chose(id: str, *indices: int) -> Trace:
        step = make_step(0, "DS", action=Selection(indices))
        seen = replace(step, observation=Observation("Who?", passages=shown), applied=Selection(indices))
        return replace(make_planned(id, "R,DS,AG", "Ada"), steps=(seen,))

    figures = rollout_figures([chose("a", 1), chose("b", 2, 3), chose("c", 0, 1, 2)], RewardConfig())
    # Kept are 6 of 12; an answer by the first and the third, in as many from the top by the second and the third.
    assert figures["selection/kept"] == pytest.approx(6 / 12)
    assert figures["selection/held"] == figures["selection/from_top"] == pytest.approx(2 / 3)
    assert rollout_figures([chose("a", 1)], RewardConfig())["selection/from_top"] == 0.0
    assert not any(
        name.startswith("selection") for name in rollout_figures([make_planned("x", "R,AG", "Ada")], RewardConfig())
    )


def test_what_a_split_gains_is_told_within_questions_that_were_also_left_whole() -> None:
    def of(question: str, workflow: str, answer: str) -> Trace:
        made = make_planned(f"{question}{workflow}{answer}", workflow, answer)
        return replace(made, question=replace(made.question, id=question))

    # One question where one of two splits is right and no whole try is, one where splits lose half; a third is never
    # split and is always right, which says nothing of splits.
    traces = [of("a", "QDS", "Ada"), of("a", "QDS", "Bob"), of("a", "R,AG", "Bob")]
    traces += [of("b", "QDS", "Bob"), of("b", "R,AG", "Ada"), of("b", "R,AG", "Bob")]
    figures = rollout_figures([*traces, of("c", "R,AG", "Ada")], RewardConfig())
    assert figures["split_gain"] == pytest.approx((0.5 - 0.5) / 2)
    assert rollout_figures(traces[:3], RewardConfig())["split_gain"] == pytest.approx(0.5)
    assert "split_gain" not in rollout_figures(traces[:2], RewardConfig())


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
    for cut_off in ('{"kind": "itera', '{"kind": "guard", "detail": "…'):
        text = '{"kind": "iteration", "iteration": 1}\n' + cut_off
        (tmp_path / "metrics.jsonl").write_bytes(text.encode()[:-1])  # the last character is half there
        assert [row["iteration"] for row in read_journal(tmp_path)] == [1]


def test_a_failure_that_said_something_odd_does_not_end_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("guard", 1, {"detail": "the server said: one\u2028two\x85three, half a character \ud800"})
    journal.write("iteration", 2, {"reward": 0.5})
    assert [row["kind"] for row in read_journal(tmp_path)] == ["guard", "iteration"]


def test_a_folder_that_is_no_run_and_a_damaged_journal_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceUnreadable, match="not a training run"):
        list(read_journal(tmp_path))
    (tmp_path / "metrics.jsonl").write_text("junk\n")
    with pytest.raises(TraceUnreadable, match="line 1"):
        list(read_journal(tmp_path))


def make_journal(folder: Path) -> Path:
    journal = Journal(folder)
    for iteration in range(1, 9):
        journal.write("iteration", iteration, FIGURES | PLANS | {"outcome": iteration / 10})
    journal.write("dev", 4, FIGURES)
    journal.write("iteration", 8, FIGURES | PLANS)
    return folder


def test_both_pictures_are_drawn_as_png_and_svg(tmp_path: Path) -> None:
    paths = plot_run(make_journal(tmp_path), tmp_path / "plots")
    assert [path.name for path in paths] == ["outcome.png", "outcome.svg", "workflows.png", "workflows.svg"]
    assert all(path.stat().st_size > 3000 for path in paths)
    assert "QDS" in paths[3].read_text() or paths[3].read_text().count("<path") > 5


def test_a_run_of_one_workflow_has_no_mix_to_draw(tmp_path: Path) -> None:
    for iteration in (1, 2):
        Journal(tmp_path).write("iteration", iteration, FIGURES)
    paths = plot_run(tmp_path, tmp_path / "plots")
    assert [path.name for path in paths] == ["outcome.png", "outcome.svg"]


def make_rows(num: int = 7) -> list[dict[str, Any]]:
    """Iterations in which every figure goes its own way."""
    return [
        {"iteration": number, "plan/QDS": number / 10, "plan/R,AG": 0.25, "plan/AG": 0.05}
        | {"learning_rate": 1e-3, "step_reward": -number / 50, "split/a": number / 9, "split/b": 0.5}
        | {"reward": number / 20, "outcome": number / 8, "rounds": 1 + number / 4, "retrievals": 3 - number / 7}
        for number in range(1, num + 1)
    ]


def lines_of(axes: Any) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]


def drawn(rows: list[dict[str, Any]], name: str, dev: Sequence[dict[str, Any]] = ()) -> list[tuple[Any, Any]]:
    """The three lines of a figure: as it was, as a mean, and on dev."""
    steps, values = [row["iteration"] for row in rows], [row[name] for row in rows]
    return [(steps, values), (steps, smooth(values)), ([row["iteration"] for row in dev], [row[name] for row in dev])]


def test_outcome_and_turns_are_drawn_each_in_its_panel() -> None:
    rows, dev = make_rows(), [make_rows()[2] | {"outcome": 0.9, "reward": 0.8, "rounds": 1.5, "retrievals": 2.5}]
    left, right = _outcome_and_turns(rows, dev).axes
    for axes, names in ((left, ("outcome", "reward")), (right, ("rounds", "retrievals"))):
        assert lines_of(axes) == [line for name in names for line in drawn(rows, name, dev)]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(names)


def test_the_areas_of_the_workflows_are_their_shares() -> None:
    rows = make_rows()
    (axes,) = _workflows(rows).axes
    heights: dict[str, list[float]] = {}
    for area in axes.collections:
        corners = area.get_paths()[0].vertices
        of_step = [corners[corners[:, 0] == row["iteration"], 1] for row in rows]
        heights[area.get_label()] = [float(edges.max() - edges.min()) for edges in of_step]
    shares = {plan: [row[f"plan/{plan}"] for row in rows] for plan in ("QDS", "R,AG", "AG")}
    shares["others"] = [1 - sum(each) for each in zip(*shares.values(), strict=True)]
    assert list(heights) == list(shares)
    for plan, share in shares.items():
        assert heights[plan] == pytest.approx(smooth(share))


def test_splits_and_compared_runs_are_drawn_from_their_own_figures() -> None:
    rows, others = make_rows(), [row | {"reward": 0.1, "step_reward": 0.2, "rounds": 2.0} for row in make_rows(3)]
    (splits,) = _splits(rows, rows[:1], ["a", "b"]).axes
    assert lines_of(splits) == [line for name in ("split/a", "split/b") for line in drawn(rows, name, rows[:1])]
    for axes, name in zip(_comparison({"one": rows, "other": others}).axes, COMPARED, strict=True):
        assert lines_of(axes) == [line for each in (rows, others) for line in drawn(each, name)]


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


def test_seeds_are_drawn_thin_and_their_mean_thick_as_far_as_all_have_come() -> None:
    first, second = make_rows(7), [row | {"reward": row["reward"] + 0.5} for row in make_rows(4)]
    wanted: list[tuple[Any, Any]] = [
        (list(range(1, 8)), smooth([row["reward"] for row in first])),
        (list(range(1, 5)), smooth([row["reward"] for row in second])),
        (list(range(1, 5)), pytest.approx(smooth([row["reward"] + 0.25 for row in first[:4]]))),
    ]
    assert lines_of(_comparison({"joint-0": first, "joint-1": second}).axes[0]) == wanted


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


def test_runs_whose_folders_have_the_same_name_are_both_drawn(tmp_path: Path) -> None:
    runs = [tmp_path / where / "ppo" for where in ("a", "b")]
    for run in runs:
        Journal(run).write("iteration", 1, FIGURES | {"step_reward": 0.1, "learning_rate": 1e-3})
    picture = plot_runs(runs, tmp_path / "plots")[1].read_text()
    assert all(picture.count(f"stroke: {colour}") >= 4 for colour in ("#1f77b4", "#ff7f0e"))


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
        spectator.alarm(4, Alarm("failures", "HTTP 500 (\x1b]0;owned\x07)"), 2, 0.5)
        spectator.remark(5, "[red]DS[/red] is quiet")
        spectator.iteration(6, 10, FIGURES | PLANS | {"seconds": 30.0, "approx_kl": -2e-9})
    text = out.getvalue()
    figures = "reward 0.250 outcome 0.500 rounds 2.000 retrievals 1.000 malformed 0.100 approx_kl 0.010"
    assert f"3/10 {figures} QDS 60% R,AG 40% 20 trained tokens/s 3:30 left" in text
    assert "4 guard: kl: [red]far[/red]; back to 2, step size times 0.5" in text
    assert "4 guard: failures: HTTP 500 (\ufffd]0;owned\ufffd); back to 2" in text
    assert "5 mind: [red]DS[/red] is quiet" in text
    assert "approx_kl 0.000" in text


def test_the_live_table_shows_the_last_iterations() -> None:
    out = io.StringIO()
    with LiveTable(Console(file=out, force_terminal=True, width=200)) as table:
        for number in range(1, 20):
            changing = {"reward": number / 100, "entropy": number / 8, "tokens/P": 10.0 * number, "tokens/AG": 1000.0}
            table.iteration(number, 20, FIGURES | PLANS | {"seconds": 2.0} | changing)
        table.dev(19, FIGURES)
        table.alarm(19, Alarm("kl", "far"), 2, 0.5)
        table.remark(19, "DS is quiet")
    plain = Text.from_ansi(out.getvalue()).plain.splitlines()  # every frame, without its colours
    head = next(line for line in plain if "reward" in line)
    names = "reward, outcome, rounds, retrievals, malformed, approx kl, entropy, plans, trained tokens/s, left"
    assert [cell.strip() for cell in head.split("┃")[1:-1]] == ["iteration", *names.split(", ")]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in plain if "/20 " in line][-12:]
    assert [row[0] for row in rows] == [f"{number}/20" for number in range(8, 20)]
    same = ["0.500", "2.000", "1.000", "0.100", "0.010"]
    assert rows[0][1:] == ["0.080", *same, "1.000", "QDS 60% R,AG 40%", "540", "0:24 left"]
    assert rows[-1][1:] == ["0.190", *same, "2.375", "QDS 60% R,AG 40%", "595", "0:02 left"]
    assert "guard: kl: far" in out.getvalue()
    assert "19 mind: DS is quiet" in out.getvalue()


def last_frame(width: int, *iterations: dict[str, float]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table as a terminal of this width shows it in the end."""
    out = io.StringIO()
    with LiveTable(Console(file=out, force_terminal=True, width=width)) as table:
        for number, figures in enumerate(iterations, start=1):
            table.iteration(number, 200, figures)
    plain = Text.from_ansi(out.getvalue()).plain.splitlines()
    assert max(map(len, plain)) <= width
    start = max(place for place, line in enumerate(plain) if "iteration" in line)
    rows = [line.split("│")[1:-1] for line in plain[start:] if "│" in line]
    return [cell.strip() for cell in plain[start].split("┃")[1:-1]], [[cell.strip() for cell in row] for row in rows]


MANY_PLANS = {"plan/QDS": 0.55, "plan/QR,R,DS,AG": 0.3, "plan/QR,R,AG": 0.1, "plan/AG": 0.05}
TRAINING = FIGURES | MANY_PLANS | {"entropy": 0.75, "seconds": 30.0, "tokens/P": 60000.0}


def test_a_narrow_terminal_shows_fewer_columns_and_each_of_them_whole() -> None:
    head, rows = last_frame(80, TRAINING, TRAINING)
    assert head == ["iteration", "reward", "outcome", "rounds", "malformed", "top plan", "left"]
    assert rows[-1] == ["2/200", "0.250", "0.500", "2.000", "0.100", "QDS 55%", "99:00 left"]


def test_a_wide_terminal_shows_every_column() -> None:
    head, rows = last_frame(200, TRAINING)
    names = "reward, outcome, rounds, retrievals, malformed, approx kl, entropy, plans, trained tokens/s, left"
    assert head == ["iteration", *names.split(", ")]
    assert rows[-1][-3:] == ["QDS 55% QR,R,DS,AG 30% QR,R,AG 10%", "2,000", "99:30 left"]


def test_a_warm_start_fits_a_narrow_terminal() -> None:
    head, rows = last_frame(80, {"loss": 3.25, "tokens_per_second": 13196.0, "seconds": 2.0})
    assert head == ["iteration", "loss", "plans", "tokens read/s", "left"]
    assert rows == [["1/200", "3.250", "", "13,196", "6:38 left"]]


def test_columns_are_chosen_by_importance_and_by_the_widest_cell_so_far() -> None:
    row = {"iteration": "1/9", "rounds": "2.000", "reward": "0.250", "plans": "QDS 60% AG 40%", "top plan": "QDS 60%"}
    assert choose_columns([row], 100) == ["iteration", "rounds", "reward", "plans"]
    exact = len("┃ iteration ┃ reward ┃ QDS 60% AG 40% ┃")
    assert choose_columns([row], exact) == ["iteration", "reward", "plans"]
    assert choose_columns([row], exact - 1) == ["iteration", "reward", "top plan"]
    assert choose_columns([row | {"plans": "QR,R,AG 60% AG 40%"}, row], exact) == ["iteration", "reward", "top plan"]
    assert choose_columns([row], 13) == ["iteration"]


def test_the_speed_says_what_it_counts() -> None:
    """Three tokens learned from in two passes, at half a second; what was sampled beside them is not in it."""
    assert speed_of({"tokens/P": 4.0, "tokens/AG": 2.0, "completion_tokens": 99.0, "seconds": 0.5}) == (
        "trained tokens/s",
        12.0,
    )
    assert speed_of({"tokens/P": 4.0}) == ("trained tokens/s", 0.0)
    assert speed_of({"tokens": 9.0, "tokens_per_second": 70.0, "seconds": 0.5}) == ("tokens read/s", 70.0)


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
