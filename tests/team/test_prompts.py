"""The instructions: short enough for a small model, and replaceable by a user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jade.backbone.weights import default_cache
from jade.config import TeamConfig
from jade.errors import ConfigError
from jade.team.roles import RoleSpec
from jade.team.team import build_team

MAX_TOKENS = 120
TEAM = build_team(TeamConfig())


def token_counter() -> Callable[[str], float]:
    """The shipped model's own tokenizer where it is at hand, else an estimate on the safe side."""
    files = sorted(default_cache().glob("weights/smollm2-135m*/tokenizer.json"))
    if not files:
        return lambda text: 1.5 * len(text.split())
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(files[0]))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("code", TEAM.prompts)
def test_an_instruction_fits_a_small_model(code: str) -> None:
    assert 0 < token_counter()(TEAM.prompts[code]) <= MAX_TOKENS


@pytest.mark.parametrize("code", ["P", "QDS", "QDP", "QR", "DS", "AG", "AS"])
def test_an_instruction_shows_the_format_that_its_parser_reads(code: str) -> None:
    example = {"P": "<workflow>QDS</workflow>", "DS": "<id>", "QR": "<query>"}.get(code, "<answer>")
    assert ("<q1>" if code.startswith("QD") else example) in TEAM.prompts[code]


def test_the_planner_is_told_of_every_module() -> None:
    words = TEAM.prompts["P"].replace(",", " ").replace(".", " ").split()
    assert {"QDS", "QDP", "QR", "R", "DS", "AG"} <= set(words)


def test_a_users_folder_replaces_the_prompts_it_has(tmp_path: Path) -> None:
    (tmp_path / "rewriter.md").write_text("Mine: <query>é</query>\n", encoding="utf-8")
    team = build_team(TeamConfig(prompts=tmp_path))
    assert team.prompts == {**TEAM.prompts, "QR": "Mine: <query>é</query>"}


def test_a_prompt_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"team\.prompts: .*absent is not a folder"):
        build_team(TeamConfig(prompts=tmp_path / "absent"))


def test_a_prompt_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "selector.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"prompt selector\.md of role DS cannot be read"):
        build_team(TeamConfig(prompts=tmp_path))


def test_a_prompt_of_no_role_is_named_with_the_names_that_are_taken(tmp_path: Path) -> None:
    names = ", ".join(role.prompt for role in TEAM.members.values() if isinstance(role, RoleSpec))
    with pytest.raises(ConfigError, match=f"team.prompts: {tmp_path} holds no prompts; name it one of {names}"):
        build_team(TeamConfig(prompts=tmp_path))
    for name in ("answerer.md", "README.md", "notes.txt"):
        (tmp_path / name).write_text("Say <answer>it</answer>.")
    assert build_team(TeamConfig(prompts=tmp_path)).prompts["AG"] == "Say <answer>it</answer>."
    (tmp_path / "planer.md").write_text("Plan.")
    with pytest.raises(ConfigError, match=f"{tmp_path / 'planer.md'} is no role's prompt; name it one of {names}"):
        build_team(TeamConfig(prompts=tmp_path))
