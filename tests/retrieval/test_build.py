"""Making and updating an index: only what changed is read, and a crash at any moment leaves a whole index."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retrieval_builders import TOWNS, build, build_from

from jade.errors import ConfigError, DocumentError, IndexUnusable
from jade.retrieval.index import open_index
from jade.retrieval.publish import writing
from jade.types import Passage

A, B, C, D = TOWNS
FILES = {"a.md": [A], "b.md": [B, C]}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of an index, hidden ones aside."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def ids(folder: Path) -> list[str]:
    index = open_index(folder, verify=True)
    found = [passage.id for passage in index.passages]
    index.close()
    return found


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    assert build_from(tmp_path / "i", FILES)[1] == ["a.md", "b.md"]
    report, read = build_from(tmp_path / "i", {"a.md": [A], "b.md": [C], "d.md": [D]})
    assert read == ["b.md", "d.md"]
    assert (report.num_read, report.num_kept, report.num_removed, report.unchanged) == (2, 1, 0, False)
    assert ids(tmp_path / "i") == ["1", "3", "4"]


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    first, _ = build_from(tmp_path / "i", {**FILES, "empty.md": []})
    before = contents(tmp_path / "i")
    again, read = build_from(tmp_path / "i", {**FILES, "empty.md": []})
    assert read == []
    assert again.unchanged
    assert contents(tmp_path / "i") == before
    assert again.unreadable == first.unreadable == (("empty.md", "is empty"),)
    assert again.num_bytes == first.num_bytes == sum(map(len, before.values())) - len(before["manifest.json"])


def test_removed_files_disappear_and_so_does_the_old_data(tmp_path: Path) -> None:
    build_from(tmp_path / "i", FILES)
    report, read = build_from(tmp_path / "i", {"b.md": [B, C]})
    assert (read, report.num_removed) == ([], 1)
    assert ids(tmp_path / "i") == ["2", "3"]
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == [".lock", report.manifest.data, "manifest.json"]


def test_other_settings_read_everything_again(tmp_path: Path) -> None:
    build_from(tmp_path / "i", FILES, settings={"words": 100})
    assert build_from(tmp_path / "i", FILES, settings={"words": 50})[1] == ["a.md", "b.md"]
    assert build_from(tmp_path / "i", FILES, settings={"words": 50}, fresh=True)[1] == ["a.md", "b.md"]


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    build_from(tmp_path / "i", FILES)
    next((tmp_path / "i").glob("data-*/sources.jsonl")).unlink()
    assert build_from(tmp_path / "i", FILES)[1] == ["a.md", "b.md"]
    assert ids(tmp_path / "i") == ["1", "2", "3"]


stores = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.lists(st.builds(Passage, st.sampled_from("xyz"), st.just("T"), st.sampled_from(["one", "two"])), max_size=3),
    min_size=1,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(stores, min_size=2, max_size=3))
def test_an_updated_index_equals_a_new_one_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, list[Passage]]]
) -> None:
    folder = tmp_path_factory.mktemp("same")
    versions = [{**version, "sure": [A]} for version in versions]
    for version in versions:
        build_from(folder / "updated", version)
    build_from(folder / "new", versions[-1])
    assert contents(folder / "updated") == contents(folder / "new")
    found = ids(folder / "new")
    assert len(set(found)) == len(found) == sum(map(len, versions[-1].values()))


def test_an_id_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    twice = [Passage("1", "", f"text {n}") for n in range(3)]
    report, _ = build_from(tmp_path / "i", {"a": twice, "b": [Passage("1~2", "", "x"), Passage("2", "", "y")]})
    assert ids(tmp_path / "i") == ["1", "1~2", "1~3", "1~2~2", "2"]
    assert report.manifest.counts["renamed"] == 3


def test_nothing_to_index_is_said_and_the_old_index_stays(tmp_path: Path) -> None:
    build_from(tmp_path / "i", FILES)
    with pytest.raises(DocumentError, match=r"nothing to index: a\.md is empty"):
        build_from(tmp_path / "i", {"a.md": []})
    with pytest.raises(DocumentError, match="no documents were found"):
        build_from(tmp_path / "i", {})
    assert ids(tmp_path / "i") == ["1", "2", "3"]


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"holds other files \(thesis\.tex\)"):
        build(tmp_path)
    with pytest.raises(ConfigError, match="File exists"):
        build(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    with writing(tmp_path / "i"), pytest.raises(IndexUnusable, match="is being written by another process"):
        build(tmp_path / "i")
    build(tmp_path / "i")


def test_progress_tells_every_stage_to_its_end(tmp_path: Path) -> None:
    heard: dict[str, tuple[int, int]] = {}

    def hear(stage: str, done: int, total: int) -> None:
        heard[stage] = (done, total)

    build_from(tmp_path / "i", FILES, progress=hear)
    assert heard == {"reading files": (2, 2), "counting words": (3, 3)}


def test_an_index_that_is_open_survives_its_replacement(tmp_path: Path) -> None:
    build_from(tmp_path / "i", FILES)
    index = open_index(tmp_path / "i")
    build_from(tmp_path / "i", {"d.md": [D]})
    assert [passage.id for passage in index.passages] == ["1", "2", "3"]
    index.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from jade.retrieval import build, publish
from jade.types import Passage

folder, moment = Path(sys.argv[1]), sys.argv[2]

def die(*anything, **more):
    os.kill(os.getpid(), signal.SIGKILL)

def progress(stage, done, total):
    if stage == moment:
        die()

if moment == "before the data is renamed":
    Path.rename = die
if moment == "before the manifest is renamed":
    Path.replace = die
if moment == "before the old data is removed":
    publish.shutil.rmtree = die
build.build_index(folder, {"new": "1"}, lambda name: [[Passage("new", "", "new text")]], settings={}, progress=progress)
"""
MOMENTS = ("reading files", "counting words", "before the data is renamed", "before the manifest is renamed")


def run_until_killed(folder: Path, moment: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), moment], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_in_the_middle_leaves_the_old_index_usable(tmp_path: Path, moment: str) -> None:
    build_from(tmp_path / "i", FILES)
    run_until_killed(tmp_path / "i", moment)
    assert ids(tmp_path / "i") == ["1", "2", "3"]
    build_from(tmp_path / "i", FILES, fresh=True)
    assert ids(tmp_path / "i") == ["1", "2", "3"]
    assert len(list((tmp_path / "i").glob("data-*"))) == 1
    assert not list((tmp_path / "i").glob(".unfinished*"))


def test_a_kill_after_the_switch_leaves_the_new_index_usable(tmp_path: Path) -> None:
    build_from(tmp_path / "i", FILES)
    run_until_killed(tmp_path / "i", "before the old data is removed")
    assert ids(tmp_path / "i") == ["new"]
    build_from(tmp_path / "i", FILES)
    assert len(list((tmp_path / "i").glob("data-*"))) == 1


def test_a_kill_during_the_first_build_leaves_a_folder_that_can_be_built_into(tmp_path: Path) -> None:
    run_until_killed(tmp_path / "i", "before the manifest is renamed")
    with pytest.raises(IndexUnusable, match="no manifest"):
        open_index(tmp_path / "i")
    build_from(tmp_path / "i", FILES)
    assert ids(tmp_path / "i") == ["1", "2", "3"]


INTERRUPTED = """
import sys
from pathlib import Path
from jade.retrieval.publish import writing

def interrupt(frame, event, argument):
    global left
    left -= event == "line"
    if left:
        return interrupt
    sys.settrace(None)
    raise KeyboardInterrupt

out, moment, entered = Path(sys.argv[1]), 0, False
with writing(out):
    pass  # what is loaded once is loaded now: from here on every entering takes the same steps
while not entered:
    left = moment = moment + 1
    try:
        sys.settrace(interrupt)
        with writing(out):
            sys.settrace(None)
            entered = True
    except KeyboardInterrupt:
        pass
    assert not list(out.glob(".unfinished*")), f"moment {moment}"
print(moment)
"""


def test_an_interrupt_at_any_moment_of_making_the_folder_leaves_none_behind(tmp_path: Path) -> None:
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "i")]
    done = subprocess.run(command, env=unmeasured, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
