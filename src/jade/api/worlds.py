"""The built-in world: a fictional country that nobody has read about, to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jade.corpus.world import World


def world(out: str | Path, *, pages: int = 300, questions: int = 300, seed: int = 0) -> World:
    """Write pages to search and questions with known answers to a folder; a world that is there is replaced."""
    from jade.corpus.world import check_place, check_world, make_world, write_world
    from jade.errors import JadeError

    check_place(Path(out))
    made = make_world(pages, questions, seed)
    if complaints := check_world(made):
        raise JadeError(f"the world of seed {seed} is unsound: {complaints[0]}; please report it")
    write_world(made, Path(out))
    return made
