"""Code from outside the package that a setting names: a .py file by its path, or a module by its name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from hashlib import blake2b
from pathlib import Path
from types import ModuleType


def load_module(where: str) -> ModuleType:
    """Run the file or import the module. What goes wrong inside is raised as it is; the caller names its setting."""
    return _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)


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
