"""The shipped paraphrases: complete, short, and in the same format as the prompts they stand in for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jade.config import Config
from jade.errors import ConfigError
from jade.evaluate.variants import variant_folders, with_variant
from jade.team.roles import MEMBERS, RoleSpec
from jade.team.team import build_team, read_prompt

ROLES = [member for member in MEMBERS if isinstance(member, RoleSpec)]


def test_every_role_has_at_least_four_paraphrases() -> None:
    assert len(variant_folders()) >= 4
    wanted = {role.prompt for role in ROLES}
    assert all({file.name for file in folder.iterdir()} == wanted for folder in variant_folders())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.code)
def test_paraphrases_differ_in_wording_and_agree_in_format(role: RoleSpec) -> None:
    texts = [read_prompt(role), *((folder / role.prompt).read_text().strip() for folder in variant_folders())]
    assert len(set(texts)) == len(texts)
    tags = [set(re.findall(r"</?[a-z0-9]+>", text)) for text in texts]
    assert all(found == tags[0] for found in tags)
    assert max(len(text.split()) for text in texts) <= 90


def test_a_variant_is_the_same_team_under_other_prompts() -> None:
    config = Config()
    base, other = build_team(config.team), build_team(with_variant(config, 1).team)
    assert set(base.prompts) == set(other.prompts)
    assert all(base.prompts[code] != other.prompts[code] for code in base.prompts)
    assert with_variant(config, 0) == config


def test_ones_own_prompts_are_not_paraphrased(tmp_path: Path) -> None:
    config = Config.model_validate({"team": {"prompts": tmp_path}})
    with pytest.raises(ConfigError, match=r"leave team\.prompts unset"):
        with_variant(config, 1)
