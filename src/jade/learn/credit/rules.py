"""The table of credit rules, the way to one's own, and what happens to advantages afterwards.

Shapes: N = action tokens of all transitions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from jade.config import CreditConfig
from jade.errors import ConfigError
from jade.learn.credit.base import Credit, Floats, Rule, apart
from jade.learn.credit.branch import branch
from jade.learn.credit.group import group
from jade.learn.credit.shared import shared
from jade.learn.credit.trajectory import trajectory
from jade.learn.transitions import Experience
from jade.outside import load_function

RULES: dict[str, Rule] = {"trajectory": trajectory, "shared": shared, "group": group, "branch": branch}
AMONG_ROLLOUTS = ("group", "branch")
"""Rules by which rollouts of one question are compared: they need two or more."""
SMALLEST_DEVIATION = 1e-8


def assign_credit(
    experience: Experience,
    values: Sequence[Floats],
    cfg: CreditConfig,
    *,
    rule: Rule | None = None,
    nothing_else_teaches: bool = False,
    bonus_roles: Collection[str] = (),
) -> Credit:
    """Advantages by the chosen rule, normalised as asked, and the returns the critic is fitted to.

    `rows` names the transitions to learn from. With `skip_even`, questions whose rollouts all earned the same are left
    out, and what is left is normalised without them; but only if `nothing_else_teaches`, such as a critic, and not
    the calls of `bonus_roles`, which learn from their entropy bonus. `rule` is the chosen rule where the caller has
    found it before: a file is run anew whenever it is looked for.
    """
    credit = (rule or find_rule(cfg.rule))(experience, values, cfg)
    if cfg.rule not in RULES:
        _check_fit(credit, values, cfg.rule)
    rows: Sequence[int] = range(len(values))
    if nothing_else_teaches and cfg.skip_even and cfg.rule in AMONG_ROLLOUTS:
        # By question, not by call: a penalty teaches only beside the calls, worth 0, that did not earn it.
        telling = {experience.transitions[row].group for row in rows if credit.advantages[row].any()}
        calls = experience.transitions
        rows = [row for row in rows if calls[row].group in telling or calls[row].role in bonus_roles]
    normal = _normalised(experience, credit, rows, cfg)
    return replace(credit, advantages=normal, rows=tuple(rows), given=credit.advantages)


def _normalised(experience: Experience, credit: Credit, rows: Sequence[int], cfg: CreditConfig) -> tuple[Floats, ...]:
    """The advantages, those of the named rows normalised."""
    if cfg.normalise == "none" or not rows:
        return credit.advantages
    kinds = [experience.transitions[row].role if cfg.normalise == "role" else "" for row in rows]
    advantages = list(credit.advantages)
    for row, normal in zip(rows, normalise([advantages[row] for row in rows], kinds), strict=True):
        advantages[row] = normal
    return tuple(advantages)


def find_rule(name: str) -> Rule:
    """A shipped rule, or one's own as `package.module:function` or `file.py:function`."""
    rule: Rule = RULES.get(name) or load_function("learn.credit.rule", name, RULES)
    return rule


def _check_fit(credit: Credit, values: Sequence[Floats], name: str) -> None:
    """A rule of somebody's own: numbers for other tokens than there are would be learned from by the wrong ones."""
    if not isinstance(credit, Credit):
        raise ConfigError(f"learn.credit.rule: {name!r} gave {type(credit).__name__} instead of a Credit")
    wanted = [(len(row),) for row in values]
    for what, given in (("advantages", credit.advantages), ("returns", credit.returns)):
        if len(given) != len(wanted):
            raise ConfigError(f"learn.credit.rule: {name!r} gave {len(given)} {what} for {len(wanted)} transitions")
        for row, (array, shape) in enumerate(zip(given, wanted, strict=True)):
            if np.shape(array) != shape:
                raise ConfigError(
                    f"learn.credit.rule: {name!r} gave {what} of shape {np.shape(array)} for transition {row}, "
                    f"which has {shape[0]} action tokens"
                )


def normalise(advantages: Sequence[Floats], kinds: Sequence[str]) -> tuple[Floats, ...]:
    """Mean 0 and deviation 1 over the tokens of each kind."""
    means, deviations = {}, {}
    for kind in set(kinds):
        tokens = np.concatenate([row for row, of in zip(advantages, kinds, strict=True) if of == kind])
        means[kind], deviations[kind] = float(tokens.mean()), max(float(tokens.std()), SMALLEST_DEVIATION)
    lengths = [len(row) for row in advantages]
    mean_N, deviation_N = (np.repeat([of[kind] for kind in kinds], lengths) for of in (means, deviations))
    return apart((np.concatenate(advantages) - mean_N) / deviation_N, lengths)
