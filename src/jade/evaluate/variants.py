"""The shipped paraphrases of the role prompts, to see how much of a score is the wording's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from jade.config import Config
from jade.errors import ConfigError


def variant_folders() -> list[Path]:
    """The folders of paraphrased prompts, in order; the first is variant 1."""
    root = Path(str(files("jade.team"))) / "prompts" / "variants"
    return sorted((path for path in root.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def with_variant(config: Config, number: int) -> Config:
    """The config under a wording of the prompts; 0 is the shipped one, or the user's own."""
    if number == 0:
        return config
    if config.team.prompts is not None:
        raise ConfigError("--prompt-variants paraphrases the shipped prompts: leave team.prompts unset")
    folders = variant_folders()
    if not 0 < number <= len(folders):
        raise ConfigError(f"prompt variant {number}: there are {len(folders)} paraphrases")
    return config.model_copy(update={"team": config.team.model_copy(update={"prompts": folders[number - 1]})})
