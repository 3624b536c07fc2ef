"""What docs/scale.md tells a reader to type exists: verbs, options, settings, files, scripts."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from jade.cli.main import app
from jade.config import Config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
SHELL = [text.replace("\\\n", " ") for kind, text in BLOCKS if kind in ("sh", "yaml")]
COMMANDS = [
    line.partition("jade ")[2] for text in SHELL for line in text.splitlines() if re.search(r"\bjade [a-z]", line)
]
SECTIONS = "|".join(name for name, field in Config.model_fields.items() if hasattr(field.annotation, "model_fields"))
SETTINGS = sorted(set(re.findall(rf"(?<![\w.-])((?:{SECTIONS})(?:\.[a-z_]+)+)\b", PAGE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_and_their_options_exist(command: str) -> None:
    verbs = typer.main.get_command(app)
    words = command.partition("#")[0].split()
    assert words[0] in verbs.commands  # type: ignore[attr-defined]
    known = {name for option in verbs.commands[words[0]].params for name in option.opts}  # type: ignore[attr-defined]
    assert [word for word in words if word.startswith("--") and word not in known] == []


def test_there_are_commands_of_every_engine() -> None:
    text = " ".join(COMMANDS)
    assert all(part in text for part in ("--backend torchrun", "--backend ray", "--address", "--shards", "export-verl"))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_exist(name: str) -> None:
    kind: Any = Config
    for part in name.split("."):
        assert part in kind.model_fields
        kind = kind.model_fields[part].annotation


@pytest.mark.parametrize("path", sorted(set(re.findall(r"runs/[\w-]+\.toml", PAGE))))
def test_configs_exist(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"jade\.cluster\.[a-z_]+(?:[.:]\w+)?", PAGE))))
def test_modules_exist(name: str) -> None:
    module, _, attribute = re.sub(r"\.(?=[A-Z])", ":", name).partition(":")
    path = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
    assert path.is_file()
    if attribute:
        assert re.search(rf"^(?:def|class) {attribute}\b", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", SHELL, ids=range(len(SHELL)))
def test_scripts_can_be_read_by_what_runs_them(script: str) -> None:
    if "cluster_name" in script:
        fields = importlib.import_module("yaml").safe_load(script)
        assert fields["max_workers"] == len(fields["provider"]["worker_ips"])
        return
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
