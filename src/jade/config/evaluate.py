"""How the team is measured."""

from __future__ import annotations

from pydantic import Field

from jade.config.section import Section


class EvalConfig(Section):
    concurrency: int = Field(64, ge=1)
    """Questions in flight at once."""
    check_index: bool = True
    """Refuse an index in which none of the benchmark's evidence pages is found."""
    give_up_after: int = Field(50, ge=1)
    """Questions failing in a row that stop the run: a server that is down is not a wrong answer."""
