"""Where a run's figures go beside its journal: TensorBoard, trackio, or what a function of one's own opens.

A tracker is a guest. Its package is looked for before anything is trained, and one that fails later is let go with a
warning: a run of days must not end because a dashboard did.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from jade.errors import ConfigError
from jade.outside import load_function

log = logging.getLogger(__name__)
SETTING = "learn.trackers"
PROJECT = "jade"
"""Where trackio shows a run."""


class Tracker(Protocol):
    """Gets the figures of the journal as they are written: `kind` is iteration, dev or guard."""

    def write(self, kind: str, iteration: int, figures: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


Open: TypeAlias = Callable[[Path, int], Tracker]
"""From a run's folder and the first iteration that it will write, which is more than 0 where the run goes on."""


class TensorBoard:
    """Event files in the run's folder. What an earlier start wrote of the same iterations is purged."""

    def __init__(self, folder: Path, first_new: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._board: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=first_new)  # type: ignore[no-untyped-call,unused-ignore]

    def write(self, kind: str, iteration: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._board.add_scalar(f"{kind}/{name}", value, iteration)

    def close(self) -> None:
        self._board.close()


class Trackio:
    """A run in trackio's local store, which knows no purging: a run that goes on is another one of its group."""

    def __init__(self, folder: Path, first_new: int) -> None:
        import trackio

        self._trackio: Any = trackio
        name = folder.resolve().name
        with redirect_stdout(io.StringIO()):  # its greetings would tear the live table
            trackio.init(
                project=PROJECT,
                name=f"{name} from {first_new}" if first_new else name,
                group=name,
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def write(self, kind: str, iteration: int, figures: Mapping[str, float]) -> None:
        self._trackio.log({f"{kind}/{name}": value for name, value in figures.items()}, step=iteration)

    def close(self) -> None:
        with redirect_stdout(io.StringIO()):
            self._trackio.finish()


TRACKERS: dict[str, Open] = {"tensorboard": TensorBoard, "trackio": Trackio}
"""Those that are known by a name; each needs the package, and the extra, that is called as it is."""


def find_tracker(name: str) -> Open:
    """A shipped tracker, or one's own as `package.module:function` or `file.py:function`."""
    if name not in TRACKERS:
        return load_function(SETTING, name, TRACKERS)
    try:
        __import__(name)
    except ImportError:
        raise ConfigError(f"{SETTING}: the package {name} is not installed; pip install 'jade-team[{name}]'") from None
    return TRACKERS[name]


class Trackers:
    """All trackers of a run. Opened with the first figures: only then is it known where a resumed run goes on."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._waiting = {name: find_tracker(name) for name in names}
        self._open: dict[str, Tracker] = {}

    def write(self, kind: str, iteration: int, figures: Mapping[str, Any], first_new: int) -> None:
        """Numbers only: what happened, in words, stands in the journal."""
        for name, open_tracker in self._waiting.items():
            with self._as_guest(name):
                self._open[name] = open_tracker(self._folder, first_new)
        self._waiting.clear()
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        for name in list(self._open) if numbers else ():
            with self._as_guest(name):
                self._open[name].write(kind, iteration, numbers)

    def close(self) -> None:
        for name in list(self._open):
            with self._as_guest(name):
                self._open[name].close()
        self._open.clear()

    @contextmanager
    def _as_guest(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            what = f"{type(error).__name__}: {error}"
            log.warning("%s: %s failed and gets no more figures (%s); metrics.jsonl has them all", SETTING, name, what)
