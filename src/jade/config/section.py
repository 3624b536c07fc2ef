"""What every part of the config has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

ROLE_CODES = ("P", "QDS", "QDP", "QR", "DS", "AG", "AS")
"""The built-in roles that have weights (retrieval is a tool and is never trained)."""


class Section(BaseModel):
    """A part of the config: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _check_part(part: tuple[float, float]) -> tuple[float, float]:
    start, end = part
    if not 0.0 <= start < end <= 1.0:
        raise ValueError("from and to must rise, between 0 and 1")
    return part


Part = Annotated[tuple[float, float], AfterValidator(_check_part)]
"""A part of something, from and to."""
