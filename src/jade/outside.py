"""Code from outside the package that a setting names: a .py file by its path, or a module by its name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from jade.errors import ConfigError


def load_module(where: str) -> ModuleType:
    """Run the file or import the module. What goes wrong inside is raised as it is; the caller names its setting."""
    return _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)


def load_function(setting: str, name: str, shipped: Iterable[str]) -> Callable[..., Any]:
    """What a setting names as `package.module:function` or `file.py:function`. Whatever goes wrong is its fault."""
    where, separator, function = name.rpartition(":")
    if not separator:
        raise ConfigError(f"{setting}: {name!r} is none of {', '.join(shipped)} and not package.module:function")
    try:
        found = getattr(load_module(where), function)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{setting}: {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{setting}: {name!r} is no function but {found!r}")
    return cast(Callable[..., Any], found)


def _load_file(path: Path) -> ModuleType:
    # Two files of one name are two modules.
    place = blake2b(str(path.resolve()).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    spec = importlib.util.spec_from_file_location(f"jade_outside_{path.stem}_{place}", path)
    assert spec is not None, "what ends in .py has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their own module up there; one that failed must not be found there again.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module
