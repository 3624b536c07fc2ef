"""From config to backbones: a URL opens a remote one, anything else a local one; what can be shared is shared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jade.backbone.base import Backbone
from jade.backbone.weights import check_named
from jade.config import BackboneConfig
from jade.errors import ConfigError

if TYPE_CHECKING:
    from jade.backbone.local.backbone import LocalBackbone


def open_backbone(config: BackboneConfig) -> Backbone:
    """One backbone, on its own."""
    return Opener().open(config)


def open_cast_backbones(
    default: BackboneConfig | Backbone, roles: Mapping[str, BackboneConfig]
) -> tuple[Backbone, dict[str, Backbone]]:
    """The shared backbone, unless it is open already, and those of the roles that have their own.

    Equal configs are one object. Configs that name the same model, device and dtype hold it in memory once, each with
    its own adapter; how that model runs (threads, batch, prompt length, inline) is taken from the first of them, the
    default coming before the roles.
    """
    opener = Opener()
    shared = opener.open(default) if isinstance(default, BackboneConfig) else default
    return shared, {role: opener.open(config) for role, config in roles.items()}


class Opener:
    """Opens each thing once."""

    def __init__(self) -> None:
        self._opened: dict[BackboneConfig, Backbone] = {}
        self._local: dict[tuple[str, str, str, Path | None], LocalBackbone] = {}

    def open(self, config: BackboneConfig) -> Backbone:
        if config not in self._opened:
            self._opened[config] = self._remote(config) if is_url(config.model) else self._over_base(config)
        return self._opened[config]

    def _remote(self, config: BackboneConfig) -> Backbone:
        from jade.backbone.remote import RemoteBackbone

        if config.adapter:
            raise ConfigError(f"backbone.adapter: {config.adapter} cannot be put over a server; serve it there")
        return RemoteBackbone(config)

    def _over_base(self, config: BackboneConfig) -> LocalBackbone:
        check_named(config.model)  # a mistyped name is found before torch is loaded, which takes seconds
        from jade.backbone.local.backbone import LocalBackbone

        place = (config.model, config.device, config.dtype)
        if (*place, config.adapter) not in self._local:
            # Of those with this model any will do: what an adapter is put over is the model that they share.
            held = next((one for key, one in self._local.items() if key[:3] == place), None)
            if held is None:
                found = LocalBackbone.open(config)
            else:
                found = held.with_adapter(config.adapter) if config.adapter else held.without_adapter()
            self._local[*place, config.adapter] = found
        return self._local[*place, config.adapter]


def is_url(model: str) -> bool:
    return model.startswith(("http://", "https://"))
