"""transformers and gguf draw progress bars of their own; a caller with a bar of its own hushes them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from transformers.utils import logging

transformers_logging: Any = logging


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """No bars and no advice from transformers inside this block; errors are raised as ever."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
        transformers_logging.set_verbosity(verbosity)
