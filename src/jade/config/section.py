"""What every part of the config has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

ROLE_CODES = ("P", "QDS", "QDP", "QR", "DS", "AG", "AS")
"""The built-in roles that have weights (retrieval is a tool and is never trained)."""


class Section(BaseModel):
    """A part of the config: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
