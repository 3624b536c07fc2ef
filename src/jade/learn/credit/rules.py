"""The table of credit rules, the way to one's own, and what happens to advantages afterwards."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from jade.config import CreditConfig
from jade.errors import ConfigError
from jade.learn.credit.base import Credit, Floats, Rule
from jade.learn.credit.group import group
from jade.learn.credit.shared import shared
from jade.learn.credit.trajectory import trajectory
from jade.learn.transitions import Experience

RULES: dict[str, Rule] = {"trajectory": trajectory, "shared": shared, "group": group}
SMALLEST_DEVIATION = 1e-8


def assign_credit(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    """Advantages by the chosen rule, normalised as asked, and the returns the critic is fitted to."""
    credit = find_rule(cfg.rule)(experience, values, cfg)
    kinds = {
        "none": None,
        "batch": [""] * len(values),
        "role": [transition.role for transition in experience.transitions],
    }[cfg.normalise]
    return credit if kinds is None else Credit(normalise(credit.advantages, kinds), credit.returns)


def find_rule(name: str) -> Rule:
    """A shipped rule, or one's own as `package.module:function` or `file.py:function`."""
    if name in RULES:
        return RULES[name]
    where, separator, function = name.rpartition(":")
    if not separator:
        raise ConfigError(f"learn.credit.rule: {name!r} is none of {', '.join(RULES)} and not package.module:function")
    try:
        rule: Rule = getattr(_load(where), function)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise ConfigError(f"learn.credit.rule: {name!r} cannot be loaded: {error}") from None
    return rule


def _load(where: str) -> ModuleType:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    spec = importlib.util.spec_from_file_location(f"jade_credit_{Path(where).stem}", where)
    if spec is None or spec.loader is None:
        raise ImportError(f"{where} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normalise(advantages: Sequence[Floats], kinds: Sequence[str]) -> tuple[Floats, ...]:
    """Mean 0 and deviation 1 over the tokens of each kind."""
    scales = {}
    for kind in set(kinds):
        tokens = np.concatenate([row for row, of in zip(advantages, kinds, strict=True) if of == kind])
        scales[kind] = (tokens.mean(), max(tokens.std(), SMALLEST_DEVIATION))
    return tuple((row - scales[of][0]) / scales[of][1] for row, of in zip(advantages, kinds, strict=True))
