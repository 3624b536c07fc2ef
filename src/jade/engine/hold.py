"""A folder that is worked in, kept to oneself meanwhile: two who go on with one run would write over each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jade.errors import ConfigError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else may write to the run meanwhile. The system lets go when this process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder} is being written by another run: wait for it, or choose another --out"
            ) from None
        except (
            ImportError,
            OSError,
        ):  # no locks on this system or disk: two writers are the user's to avoid
            pass
        yield
