"""What libraries say that concerns nobody here: bars where a caller draws its own, advice meant for each other."""

from __future__ import annotations

import contextlib
import io
import warnings
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


@contextlib.contextmanager
def peft_hushed() -> Iterator[None]:
    """peft asks models by names that transformers has given up (5.23); only peft can ask otherwise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield
