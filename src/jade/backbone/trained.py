"""What weights were trained under that their users must know: the end of the dial, in `jade.json` beside them.

An effort is a place on the dial, so a team that is told prices from another scale than it was trained on misreads them.
"""

from __future__ import annotations

import json
from pathlib import Path

from jade.backbone.weights import TRAINED, priced_adapter
from jade.config import BackboneConfig, Config
from jade.errors import WeightsMissing

FILE = "jade.json"
PLANNER = "P"


def write_dial(folder: Path, dial: float) -> None:
    """Keep the dial with the weights in the folder; without one there is nothing to keep."""
    if dial > 0:
        (folder / FILE).write_text(json.dumps({"dial": dial}) + "\n", encoding="utf-8")


def read_dial(cfg: BackboneConfig) -> float:
    """The dial that the adapter, or else the model, was trained with; 0 where none is known. Nothing is fetched."""
    model = TRAINED[cfg.model].folder(cfg.model) if cfg.model in TRAINED else Path(cfg.model).expanduser()
    for path in (folder / FILE for folder in (cfg.adapter, model) if folder is not None):
        if path.is_file():
            return _dial(path)
    return 0.0


def as_trained(config: Config, *, may_be_asked: bool = False) -> Config:
    """The config with the dial of its weights, unless it names one itself.

    The team that ships has a dial in a planner of its own, which speaks where an effort is named: in the config, or,
    where questions `may_be_asked` for with an effort of their own, with a question.
    """
    if "dial" in config.reward.model_fields_set:
        return config
    told: dict[str, object] = {"dial": read_dial(config.backbone)}
    update: dict[str, object] = {}
    planner = _priced_planner(config) if may_be_asked or config.reward.effort is not None else None
    if planner is not None:
        told = {"dial": read_dial(planner), "untold": True}
        update["roles"] = {**config.roles, PLANNER: planner}
    return config.model_copy(update={**update, "reward": config.reward.model_copy(update=told)})


def _priced_planner(config: Config) -> BackboneConfig | None:
    """The planner for prices that came with a team, unless the config has an adapter or a planner of its own."""
    if config.backbone.adapter is not None or PLANNER in config.roles:
        return None
    folder = priced_adapter(config.backbone.model)
    if folder is None:
        return None
    return config.backbone.model_copy(update={"adapter": folder, "only_priced": True})


def _dial(path: Path) -> float:
    try:
        dial = json.loads(path.read_text(encoding="utf-8"))["dial"]
        if isinstance(dial, int | float) and dial > 0:
            return float(dial)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise WeightsMissing(f'{path} names no dial, as {{"dial": 0.3}} would; export the team again, or remove the file')
