"""A user's own roles and tools: from a file, a module or an installed package, without touching ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from jade.config import TeamConfig
from jade.errors import ConfigError
from jade.outside import load_module
from jade.team.roles import RoleSpec, ToolSpec
from jade.team.team import TeamBuilder, build_team
from jade.team.workflow import parse_workflow, print_workflow
from jade.types import Malformed, Note, Observation, Passage, Step, Workflow

pytestmark = pytest.mark.usefixtures("forget_modules")
EXAMPLE = Path(__file__).parents[2] / "examples" / "fact_checker.py"
CHECKER = dedent('''
    """A role that checks facts and a tool that knows the date."""

    from __future__ import annotations

    from dataclasses import dataclass

    from jade.team.roles import RoleSpec, ToolSpec
    from jade.types import Malformed, Note

    @dataclass(frozen=True)
    class Calendar:
        today: str = "1 May 1816"

    def parse(text, seen):
        return Note(text) if text else Malformed("nothing said")

    def nothing(text, seen):
        return Note("unchecked")

    async def date(memory, retriever, k):
        return Note(Calendar().today)

    def register(team):
        team.add(
            RoleSpec("FC", "fact checker", "work", "checker.md", parse, nothing, frozenset({"passages"}),
                     after=frozenset({"R"})),
            prompt_text="Do the documents agree?",
        )
        team.add(ToolSpec("DATE", "calendar", date))
''')


def write_module(folder: Path, name: str, text: str = CHECKER) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def install(folder: Path, target: str) -> None:
    """What pip leaves behind of a package with an entry point."""
    info = folder / "checker-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: checker\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[jade.extensions]\nfact-checker = {target}\n")


@pytest.fixture(params=["file", "module", "entry point", "entry point of the function"])
def extension(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same extension, brought in each of the ways there are."""
    path = write_module(tmp_path, "my_checker")
    if request.param == "file":
        return str(path)
    monkeypatch.syspath_prepend(tmp_path)
    if request.param == "module":
        return "my_checker"
    install(tmp_path, "my_checker:register" if "function" in request.param else "my_checker")
    return "fact-checker"


def test_a_role_and_a_tool_from_outside_join_the_team(extension: str) -> None:
    team = build_team(TeamConfig(extensions=(extension,)))
    assert team.prompts["FC"] == "Do the documents agree?"
    assert isinstance(team.members["DATE"], ToolSpec)


def test_the_example_of_the_docs_is_a_role_that_can_be_planned_and_paid() -> None:
    team = build_team(TeamConfig(extensions=(str(EXAMPLE),), workflows=("R,FC,AG", "R,AG")))
    checker = team.role("FC")
    passages = (Passage("1", "Emma", "Jane Austen wrote Emma."),)
    seen = Observation("Who wrote Emma?", passages=passages)
    assert [checker.parse(text, seen) for text in ("Yes.", "no", "maybe")] == [
        Note("yes"), Note("no"), Malformed("neither yes nor no"),
    ]  # fmt: skip
    is_right = load_module(str(EXAMPLE)).is_right
    said = [Step("0:0", "0", 1, "FC", seen, applied=Note(word)) for word in ("yes", "no", "unchecked")]
    assert [is_right(step, ("Jane Austen",)) for step in said] == [True, False, False]
    assert [is_right(step, ("Ada",)) for step in said] == [False, True, False]


def test_the_grammar_takes_new_members_in(extension: str) -> None:
    team = build_team(TeamConfig(extensions=(extension,)))
    codes = team.legal(child=False).codes
    assert "DATE,QR,R,FC,DS,AG" in codes
    assert "FC,R,AG" not in codes
    for workflow in team.grammar.workflows:
        assert parse_workflow(print_workflow(workflow), codes) == workflow


def test_workflows_of_the_config_may_name_new_members(extension: str) -> None:
    team = build_team(TeamConfig(extensions=(extension,), workflows=("R,FC,AG",)))
    assert team.root_plans == (Workflow(("R", "FC", "AG")),)


def test_our_own_team_stays_as_it_was(extension: str) -> None:
    build_team(TeamConfig(extensions=(extension,)))
    assert set(build_team(TeamConfig()).members) == {"P", "QDS", "QDP", "QR", "R", "DS", "AG", "AS", "S1"}


def test_a_new_role_may_keep_its_instruction_in_the_users_prompt_folder(tmp_path: Path) -> None:
    path = write_module(tmp_path, "quiet", CHECKER.replace('prompt_text="Do the documents agree?",', ""))
    (tmp_path / "checker.md").write_text("Check.")
    team = build_team(TeamConfig(extensions=(str(path),), prompts=tmp_path))
    assert team.prompts["FC"] == "Check."


def test_a_new_role_without_an_instruction_is_named(tmp_path: Path) -> None:
    path = write_module(tmp_path, "silent", CHECKER.replace('prompt_text="Do the documents agree?",', ""))
    with pytest.raises(ConfigError, match=r"prompt checker\.md of role FC cannot be read"):
        build_team(TeamConfig(extensions=(str(path),)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "has no function register"),
        ("register = 1", "has no function register"),
        ("def (", "cannot be loaded: SyntaxError"),
        ("import nothing_of_the_kind", "cannot be loaded: ModuleNotFoundError"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("import sys; sys.exit(0)", "cannot be loaded: SystemExit: 0"),
        ("def register(team): raise SystemExit(0)", r"register\(team\) failed: SystemExit"),
        ("def register(): ...", r"register\(team\) failed: TypeError"),
        ("def register(team): team.ad()", r"register\(team\) failed: AttributeError"),
    ],
)
def test_an_extension_that_cannot_be_used_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = write_module(tmp_path, "broken", text)
    with pytest.raises(ConfigError, match=why) as caught:
        build_team(TeamConfig(extensions=(str(path),)))
    assert f"team.extensions: {path}" in str(caught.value)


@pytest.mark.parametrize("name", ["no_such_module", "no/such/file.py", "a\0b.py", ""])
def test_an_extension_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"team\.extensions: .*cannot be loaded"):
        build_team(TeamConfig(extensions=(name,)))


def test_an_entry_point_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "a_module_that_went_away")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="fact-checker cannot be loaded: ModuleNotFoundError"):
        build_team(TeamConfig(extensions=("fact-checker",)))


OURS = build_team(TeamConfig())


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (replace(OURS.role("QR"), code="Q-R"), "letters and digits only"),
        (replace(OURS.role("QR"), code=""), "letters and digits only"),
        (replace(OURS.role("QR"), sees=frozenset({"passages", "future"})), "sees 'future': choose from context"),
    ],
)
def test_a_member_that_could_never_work_is_refused_when_it_is_added(member: RoleSpec, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        TeamBuilder().add(member)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("team.add(replace(team.members['P'], code='P2'), 'Plan.')", "exactly one role of kind 'plan'.*: P, P2"),
        ("del team.members['AS']", "exactly one role of kind 'summarise'.*: none"),
        ("team.add(replace(team.members['DS'], after=frozenset({'ZZ'})))", "DS must come after 'ZZ', which is no"),
    ],
)
def test_a_team_that_could_never_work_is_refused_when_it_is_built(tmp_path: Path, line: str, why: str) -> None:
    text = f"from dataclasses import replace\ndef register(team):\n    {line}\n"
    with pytest.raises(ConfigError, match=why):
        build_team(TeamConfig(extensions=(str(write_module(tmp_path, "odd", text)),)))


def test_a_member_of_ours_can_be_replaced(tmp_path: Path) -> None:
    text = (
        "from dataclasses import replace\ndef register(team):\n    team.add(replace(team.members['AG'], max_tokens=7))"
    )
    team = build_team(TeamConfig(extensions=(str(write_module(tmp_path, "short", text)),)))
    assert team.role("AG").max_tokens == 7
    assert list(team.members) == list(OURS.members)
