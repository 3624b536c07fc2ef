"""What a run reads beside its config: prompts, roles and functions of one's own, questions, an index, weights to begin
with.

A config names files, and files change. A run that goes on with other prompts than it began with is another run, and
nothing in its settings would tell. Adapters that go on over other weights than they were trained over say nothing
sensible any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from jade.backbone.fingerprint import file_sha256, fingerprint_weights
from jade.config import Config
from jade.errors import ConfigError
from jade.retrieval.fingerprint import fingerprint_index

TEXTS = "texts.json"
"""Only a run has it in its folder."""


def check_texts(config: Config, folder: Path, *, anew: bool) -> None:
    """Note the checksums of all that a run reads when it begins, or begins anew; refuse to go on with a run when one of
    them has changed since."""
    material = _material(config)
    found = {str(path): _checksum(path) for path in _texts(config)} | material
    noted = folder / TEXTS
    if noted.is_file() and not anew:
        was = material | _read(noted)  # texts alone were noted once
        changed = sorted(name for name in was.keys() | found.keys() if was.get(name) != found.get(name))
        if changed:
            raise ConfigError(
                f"{changed[0]}: is not what it was when the run in {folder} began; put it back, or begin another run"
            )
        return
    write_whole(noted, json.dumps(found, indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: a run of which something is half there could not be resumed."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _checksum(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None


def _read(noted: Path) -> dict[str, str]:
    try:
        was = json.loads(noted.read_text(encoding="utf-8"))
        if isinstance(was, dict):
            return was
    except (OSError, ValueError):
        pass
    raise ConfigError(f"{noted}: is not what was written there; remove it if what the run reads has not changed")


def _texts(config: Config) -> Iterator[Path]:
    """Files alone: a module's name stands for an installed package, whose versions are another matter."""
    if config.team.prompts is not None:
        yield from sorted(config.team.prompts.glob("*.md"))
    named = (
        *config.team.extensions,
        *(own.rpartition(":")[0] for own in (config.learn.credit.rule, config.reward.outcome)),
    )
    yield from (path for name in named if name.endswith(".py") and (path := Path(name)).is_file())


def _material(config: Config) -> dict[str, str]:
    """Checksums of question files, the index and weights, by their paths. What a server or a hub has is not known."""
    learn, own = config.learn, [config.backbone, *config.roles.values()]
    files = (path for path in (*learn.questions, *learn.dev) if path.is_file())
    names = [*(each.model for each in own), *(str(each.adapter) for each in own if each.adapter is not None)]
    weights = {name: fingerprint_weights(name) for name in names}
    index = config.retrieval.index
    found = {str(path): _checksum(path) for path in files} | weights | {index: fingerprint_index(index)}
    return {name: checksum for name, checksum in found.items() if checksum != name}
