"""Reports: numbers from a fixed run, foreign text that stays text, and pages that load nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Annotation
from report_fixture import HOSTILE, make_trace, write_answers, write_run

from jade.errors import ConfigError, TraceUnreadable
from jade.evaluate.arms import read_arms
from jade.evaluate.board import Board, read_board
from jade.evaluate.effect import Doubt, difference_table, f1_table
from jade.evaluate.examples import choose_examples, outline
from jade.evaluate.figures import pictures, spread_apart
from jade.evaluate.markdown import escape
from jade.evaluate.picture import DARK, LIGHT
from jade.evaluate.report import write_report
from jade.evaluate.tables import (
    Table,
    cost_table,
    failure_table,
    methods_table,
    plan_table,
    retrieval_table,
    robustness_table,
    scores_table,
    workflow_table,
)
from small_disk import most_bytes_in_a_file

EXPECTED = Path(__file__).with_name("expected_report.md")
DOUBT = Doubt(resamples=500, seed=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("fixture") / "run")


@pytest.fixture(scope="module")
def board(run: Path) -> Board:
    return board_of(run)


@pytest.fixture(scope="module")
def written(run: Path) -> Path:
    """The folder of the whole report."""
    write_report(read_arms([str(run)]), run.parent / "report", resamples=500)
    return run.parent / "report"


def board_of(*runs: Path) -> Board:
    return read_board(read_arms([str(run) for run in runs]))


def texts(table: Table) -> dict[str, list[str]]:
    return {row[0].text: [entry.text for entry in row[1:]] for row in table.rows}


def test_the_report_of_a_fixed_run_is_the_stored_one(written: Path) -> None:
    assert (written / "report.md").read_text() == EXPECTED.read_text()


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_a_report_replaces_one_of_its_own_and_nothing_else(run: Path, tmp_path: Path, name: str) -> None:
    for _ in range(2):
        write_report(read_arms([str(run)]), tmp_path, resamples=100)
    for own in ("# Report\n\nWritten by hand: 3 methods on 2 benchmarks.\n", ""):
        (tmp_path / name).write_text(own)
        with pytest.raises(ConfigError, match=f"--out: {tmp_path / name} is no report of jade's"):
            write_report(read_arms([str(run)]), tmp_path, resamples=100)
        assert (tmp_path / name).read_text() == own


def test_a_report_that_was_interrupted_is_written_again(run: Path, tmp_path: Path) -> None:
    """It was taken for somebody's own."""
    with most_bytes_in_a_file(100), pytest.raises(OSError, match="File too large"):
        write_report(read_arms([str(run)]), tmp_path, resamples=100)
    assert not (tmp_path / "report.md").exists()
    write_report(read_arms([str(run)]), tmp_path, resamples=100)
    assert (tmp_path / "report.md").read_text().startswith("# 3 methods")


def test_a_password_in_a_models_address_stands_in_no_report(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"backbone": {"model": "https://alice:s3cret@models.example/v1#a-model"}}
    run = write_answers(tmp_path / "run", {"nq": ["Ada", "Ada Lovelace"]}, **settings)
    write_report(read_arms([str(run)]), tmp_path / "report", resamples=100)
    for page in ("report.md", "report.html"):
        text = (tmp_path / "report" / page).read_text()
        assert "models.example/v1" in text
        assert "s3cret" not in text


def test_half_a_character_in_an_answer_does_not_cost_the_report(tmp_path: Path) -> None:
    run = write_answers(tmp_path / "run", {"nq": ["nobody \ud800", "Ada Lovelace"]})
    write_report(read_arms([str(run)]), tmp_path / "report", resamples=100)
    assert "nobody \\ud800" in (tmp_path / "report" / "report.html").read_text()


def test_f1_is_the_mean_over_questions_and_the_best_is_marked(board: Board) -> None:
    table = f1_table(board, DOUBT)
    assert table.header == ("method", "NQ", "HotpotQA", "mean")
    # Ten questions: vanilla 3 x 1 + 3 x 2/3; jade 8 x 1.
    assert texts(table) == {
        "No retrieval": ["0.0", "0.0", "0.0"],
        "Vanilla RAG": ["50.0", "50.0", "50.0"],
        "JADE": ["80.0", "80.0", "80.0"],
    }
    assert [[entry.best for entry in row] for row in table.rows] == [
        [False] * 4,
        [False] * 4,
        [False, True, True, True],
    ]


def test_differences_are_of_the_same_questions_with_p_values(board: Board) -> None:
    baseline = board.column("vanilla-rag")
    assert baseline is not None
    rows = {row[0].text: row[1:] for row in difference_table(board, baseline, DOUBT).rows}
    assert set(rows) == {"No retrieval", "JADE"}
    assert [entry.text for entry in rows["JADE"]] == ["+30.0", "+30.0", "+30.0"]
    assert rows["No retrieval"][2].small[1] == "p = 0.002"


def test_costs_are_means_per_question(board: Board) -> None:
    assert texts(cost_table(board)) == {
        "No retrieval": ["1.00", "1.00", "0.00", "100", "10.0", "1.00", "0.56"],
        "Vanilla RAG": ["1.00", "1.00", "1.00", "100", "10.0", "1.00", "0.56"],
        "JADE": ["5.00", "3.00", "2.00", "500", "50.0", "1.00", "0.56"],
    }


def test_every_score_is_reported(board: Board) -> None:
    found = texts(scores_table(board))
    assert found["JADE"] == ["80.0"] * 6 + ["0.0"]
    assert found["Vanilla RAG"] == ["50.0", "30.0", "60.0", "45.0", "30.0", "50.0", "0.0"]


def test_retrieval_is_measured_at_one_and_at_k_and_by_pages(board: Board) -> None:
    rows = {row[0].text: row[1:] for row in retrieval_table(board).rows}
    assert [entry.text for entry in rows["No retrieval"]] == ["–", "–"]
    assert [entry.text for entry in rows["Vanilla RAG"]] == ["50.0 / 100.0", "50.0 / 100.0"]
    assert [entry.small for entry in rows["JADE"]] == [(), ("pages 50.0",)]


def test_plans_show_depth_and_malformed_outputs_by_role(board: Board) -> None:
    table = plan_table(board)
    assert table.header == ("method", "depth", "stopped early", "P", "QDP", "AG", "AS")
    assert texts(table)["JADE"] == ["1.00", "0.0", "10.0", "0.0", "0.0", "0.0"]
    assert texts(workflow_table(board))["JADE"] == ["QDP 100", "QDP 100"]


def test_failures_are_sorted_by_where_the_evidence_was_lost(board: Board) -> None:
    found = texts(failure_table(board))
    assert found["No retrieval"] == ["0.0", "0.0", "100.0", "0.0", "0.0", "0.0"]
    assert found["Vanilla RAG"] == ["60.0", "0.0", "0.0", "0.0", "40.0", "0.0"]
    assert found["JADE"] == ["80.0", "0.0", "0.0", "0.0", "0.0", "20.0"]


def test_robustness_is_told_where_prompts_were_varied(tmp_path: Path, board: Board) -> None:
    assert robustness_table(board) is None
    varied = board_of(write_run(tmp_path / "run", variants=2, num_questions=4))
    assert len(varied.columns) == 3
    table = robustness_table(varied)
    assert table is not None
    (row,) = [row for row in table.rows if row[0].text == "JADE" and row[1].text == "NQ"]
    assert [entry.text for entry in row[2:]] == ["3", "75.0", "75.0", "75.0", "75.0", "0.0", "5.0 / 5.0"]
    assert [row[1].text for row in table.rows if row[0].text == "JADE"] == ["NQ", "HotpotQA", "mean"]


def test_the_spread_of_wordings_is_that_of_their_means(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", methods=("jade",), variants=1, num_questions=3)
    # Shipped: right, right, wrong. Paraphrased: right, wrong, right on one set; on the other all are made wrong.
    for path in (run / "nq/jade@1").glob("records.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(r | {"scores": dict.fromkeys(r["scores"], 0.0)}) + "\n" for r in records))
    table = robustness_table(board_of(run))
    assert table is not None
    assert [[entry.text for entry in row[1:]] for row in table.rows] == [
        ["NQ", "2", "66.7", "33.3", "0.0", "66.7", "33.3", "6.7 / 6.7"],
        ["HotpotQA", "2", "66.7", "66.7", "66.7", "66.7", "0.0", "6.7 / 6.7"],
        ["mean", "2", "66.7", "50.0", "33.3", "66.7", "16.7", "6.7 / 6.7"],
    ]


def test_the_same_method_from_two_runs_is_told_apart_by_its_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, methods=("jade",), num_questions=3) for name in ("before", "after")]
    assert [column.label for column in board_of(*runs).columns] == ["jade (before)", "jade (after)"]
    twins = [write_run(tmp_path / name / "run", methods=("jade",), num_questions=3) for name in ("a", "b")]
    assert [column.label for column in board_of(*twins).columns] == [f"jade ({tmp_path}/{n}/run)" for n in ("a", "b")]


def test_a_method_that_lacks_a_benchmark_has_no_mean(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_questions=3)
    (run / "nq/jade/records.jsonl").unlink()
    board = board_of(run)
    assert texts(f1_table(board, DOUBT))["JADE"] == ["–", "66.7", "–"]
    assert texts(cost_table(board))["JADE"] == ["–"] * 7
    assert {picture.name for picture in pictures(board, DOUBT)} == {"f1", "f1-retrievals", "f1-tokens", "failures"}


def test_examples_are_right_and_wrong_ones_from_all_benchmarks(board: Board) -> None:
    column = board.column("jade")
    assert column is not None
    right, wrong = (choose_examples(column, right=kind) for kind in (True, False))
    assert len(right) == 10
    assert all(example.record.scores["em"] == 1.0 for example in right)
    assert [example.benchmark for example in right[:4]] == ["nq", "hotpotqa", "nq", "hotpotqa"]
    assert len(wrong) == 4
    assert all(example.record.scores["f1"] == 0.0 for example in wrong)
    assert all(example.trace.id == example.record.trace for example in (*right, *wrong))


def test_a_folder_whose_name_is_no_text_is_reported(tmp_path: Path) -> None:
    folder = write_run(tmp_path / os.fsdecode(b"ru\xff"), num_questions=2)
    write_report(read_arms([str(folder)]), tmp_path / "report", resamples=50)
    assert "ru\\udcff" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_records_that_were_moved_without_their_traces_have_no_examples(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for traces in run.glob("nq/*/traces.jsonl"):
        traces.unlink()
    column = board_of(run).column("jade")
    assert column is not None
    assert {example.benchmark for example in choose_examples(column, right=True)} == {"hotpotqa"}


def test_an_outline_shows_every_node_and_step() -> None:
    lines = outline(make_trace("nq", "jade", 0))
    assert [line.split()[0] for line in lines] == ["Who", "P", "QDP", "Part", "R", "AG", "Part", "R", "AG", "Who", "AS"]
    assert "malformed (not of the form)" in lines[1]


class Page(HTMLParser):
    """What a browser would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]


def test_the_page_is_self_contained_and_foreign_text_is_escaped(written: Path) -> None:
    html = (written / "report.html").read_text()
    page = Page()
    page.feed(html)
    assert "script" not in page.tags
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    assert page.tags.count("details") == 14
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    markdown = (written / "report.md").read_text()
    outside_code = [line for line in markdown.splitlines() if not line.startswith("    ")]
    assert not any("<script>" in line or "[x](y)" in line for line in outside_code)


def test_every_picture_is_written_as_png_and_svg(written: Path) -> None:
    names = {path.name for path in written.iterdir()}
    assert {"f1-retrievals.png", "f1-retrievals.svg", "f1-tokens.png", "failures.svg"} <= names
    assert (written / "f1-tokens.png").read_bytes().startswith(b"\x89PNG")
    assert (written / "f1-tokens.svg").read_bytes().startswith(b"<?xml")


def test_pictures_are_the_same_every_time_and_differ_by_theme(board: Board) -> None:
    picture, again = pictures(board, DOUBT)[0], pictures(board, DOUBT)[0]
    assert picture.svg(LIGHT) == again.svg(LIGHT)
    assert picture.svg(LIGHT) != picture.svg(DARK)


def test_mixes_of_arms_whose_names_are_one_to_a_disk_have_a_picture_each(tmp_path: Path) -> None:
    for number, name in enumerate(("step 0.1", "step 0-1"), start=1):
        for records in write_run(tmp_path / name, methods=("jade",)).glob("*/jade/records.jsonl"):
            records.write_text(records.read_text().replace('"workflow": "QDP"', '"workflow": "AG"', number))
    board = read_board(read_arms([f"{name}={tmp_path / name}" for name in ("step 0.1", "step 0-1")]))
    mixes = [picture.name for picture in pictures(board, DOUBT) if picture.name.startswith("workflows")]
    assert mixes == ["workflows-step-0-1", "workflows-step-0-1--2"]


def test_the_picture_of_failures_draws_what_its_table_says(board: Board) -> None:
    (picture,) = [picture for picture in pictures(board, DOUBT) if picture.name == "failures"]
    (axes,) = picture.draw(LIGHT).axes
    rows = [label.get_text() for label in axes.get_yticklabels()]
    bars = {str(bar.get_label()): [round(part.get_width(), 6) for part in bar] for bar in axes.containers}
    assert rows == ["No retrieval", "Vanilla RAG", "JADE"]
    assert bars == {
        "right": [0.0, 60.0, 80.0],
        "never retrieved": [100.0, 0.0, 0.0],
        "selected, misread": [0.0, 40.0, 0.0],
        "lost in synthesis": [0.0, 0.0, 20.0],
    }
    table = failure_table(board)
    for row in table.rows:
        drawn = {name: f"{widths[rows.index(row[0].text)]:.1f}" for name, widths in bars.items()}
        said = dict(zip(table.header[1:], (entry.text for entry in row[1:]), strict=True))
        assert said == dict.fromkeys(said, "0.0") | drawn


def test_the_picture_of_costs_puts_every_method_where_its_tables_say(board: Board) -> None:
    (picture,) = [picture for picture in pictures(board, DOUBT) if picture.name == "f1-tokens"]
    (axes,) = picture.draw(LIGHT).axes
    points = [np.asarray(line.get_xydata()).tolist()[0] for line in axes.lines if line.get_marker() == "o"]
    assert points == [pytest.approx(point) for point in ([110.0, 0.0], [110.0, 50.0], [550.0, 80.0])]


def test_where_a_planner_chose_its_mix_of_workflows_is_drawn(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", methods=("jade", "vanilla-rag"))
    for path in run.glob("*/jade/records.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        rare = lines[0].replace('"workflow": "QDP"', '"workflow": "R,QR,AG"')
        path.write_text("".join([rare, lines[1].replace('"workflow": "QDP"', '"workflow": "R,AG"'), *lines[2:]]))
    board = board_of(run)
    (picture,) = [picture for picture in pictures(board, DOUBT) if picture.name == "workflows-jade"]
    assert picture.title == "Workflow mix of JADE"
    assert picture.png(DARK).startswith(b"\x89PNG")
    (jade,) = [row for row in workflow_table(board).rows if row[0].text == "JADE"]
    assert [(entry.text, entry.small) for entry in jade[1:]] == [("QDP 80", ("R,AG 10", "R,QR,AG 10"))] * 2


def test_methods_that_chose_alike_share_a_picture(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", methods=("jade",))
    for path in run.glob("*/jade"):
        records = path / "records.jsonl"
        records.write_text(records.read_text().replace('"workflow": "QDP"', '"workflow": "R,AG"', 1))
        shutil.copytree(path, path.with_name("mao-arag"))
    titles = [picture.title for picture in pictures(board_of(run), DOUBT)]
    assert [title for title in titles if "mix" in title] == ["Workflow mix of MAO-ARAG and JADE"]


def test_the_oracle_has_no_cost_of_a_model(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", methods=("vanilla-rag",))
    for path in run.glob("*/vanilla-rag"):
        shutil.copytree(path, path.with_name("oracle"))
    board = board_of(run)
    assert texts(cost_table(board))["Oracle"] == ["–", "1.00", "1.00", "–", "–", "–", "–"]
    drawn = {picture.name: picture.draw(LIGHT).axes[0] for picture in pictures(board, DOUBT)}
    num_points = {name: sum(line.get_marker() == "o" for line in axes.lines) for name, axes in drawn.items()}
    assert (num_points["f1-retrievals"], num_points["f1-tokens"]) == (2, 1)


def test_the_names_of_methods_are_explained(board: Board) -> None:
    table = methods_table(board)
    assert table is not None
    assert texts(table)["Vanilla RAG"] == ["searches for the question as it stands, then answers", "R,AG", "nothing"]
    assert texts(table)["JADE"][1:] == ["all", "all roles"]
    assert "S1 searcher" in table.note


def test_names_that_are_not_there_are_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--baseline 'rrr': no such method in these runs; there are no-retrieval"):
        write_report(read_arms([str(run)]), tmp_path, baseline="rrr")
    with pytest.raises(ConfigError, match="--examples 'rrr'"):
        write_report(read_arms([str(run)]), tmp_path, focus="rrr")
    with pytest.raises(TraceUnreadable, match="is not the folder of a run"):
        write_report(read_arms([str(tmp_path / "nothing")]), tmp_path)


def test_a_run_without_a_finished_question_says_what_to_do(tmp_path: Path) -> None:
    run, other = write_run(tmp_path / "run", num_questions=0), write_run(tmp_path / "other")
    for runs in ([run], [other, run]):
        with pytest.raises(TraceUnreadable, match=r"no finished questions in .*/run: run jade eval first"):
            board_of(*runs)


def test_an_arm_whose_runs_share_no_question_is_refused_and_not_left_out(tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / name, methods=(name,)) for name in ("jade", "vanilla-rag"))
    said = r"joint: no question that all of .*/jade, .*/vanilla-rag have finished; runs of one name are pooled"
    with pytest.raises(TraceUnreadable, match=said):
        read_board(read_arms([f"joint={one}", f"joint={two}", f"other={one}"]))


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.01, 0.2))
def test_labels_keep_their_order_and_their_distance(heights: list[float], gap: float) -> None:
    placed = spread_apart(sorted(heights), gap)
    assert len(placed) == len(heights)
    assert all(upper - lower >= gap - 1e-9 for lower, upper in pairwise(placed))


def test_many_names_stay_inside_their_picture(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run-{number}", num_questions=2) for number in range(8)]
    for picture in (picture for picture in pictures(board_of(*runs), DOUBT) if picture.name.startswith("f1-")):
        labels = [label for label in picture.draw(LIGHT).axes[0].texts if isinstance(label, Annotation)]
        heights = sorted(label.xyann[1] for label in labels)
        assert len(heights) == 24
        assert -0.01 <= heights[0] < heights[-1] <= 1.01
        assert min(after - before for before, after in pairwise(heights)) > 0.03


def test_labels_that_are_apart_stay_where_they_are() -> None:
    assert spread_apart([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])


@given(st.text())
def test_escaped_markdown_is_one_line_without_live_markup(text: str) -> None:
    line = escape(text)
    assert "\n" not in line
    assert not re.search(r"(?<!\\)(?:\\\\)*[<*|`\[]", line)
    assert re.sub(r"\\(.)", r"\1", line) == " ".join(text.split())


def test_hostile_text_is_really_in_the_fixture() -> None:
    assert HOSTILE in make_trace("nq", "vanilla-rag", 3).answer
