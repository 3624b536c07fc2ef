"""The words and sounds the world is made of, read once from `lexicon.toml`."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

_DATA: dict[str, Any] = tomllib.loads((files(__package__) / "lexicon.toml").read_text(encoding="utf-8"))

WORDS: dict[str, tuple[str, ...]] = {name: tuple(words) for name, words in _DATA.items() if isinstance(words, list)}
"""Lists of words: given names, title words and the values of literal relations."""

SUFFIXES: dict[str, tuple[str, ...]] = {kind: tuple(words) for kind, words in _DATA["suffixes"].items()}
PREFIXES: dict[str, tuple[str, ...]] = {kind: tuple(words) for kind, words in _DATA["prefixes"].items()}
SOUNDS: dict[str, tuple[str, ...]] = {part: tuple(sounds) for part, sounds in _DATA["sounds"].items()}
ENDINGS: dict[str, tuple[str, ...]] = {kind: tuple(sounds) for kind, sounds in _DATA["endings"].items()}
